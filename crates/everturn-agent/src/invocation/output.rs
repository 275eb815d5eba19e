//! The output of an invocation.

use everturn_core::{Error, Result};

use super::background::{no_pending_snapshot, no_store, no_subscription};
use super::machine::{Cause, Event, Resolution};
use super::{AgentEvent, Driver};
use crate::cursor::InvocationCursor;
use crate::reading::exposure;
use crate::transform::shown_state;
use crate::{AgentFinishReason, AgentOutput, AgentResult, CustomState, SessionState};

impl<S: CustomState> Driver<S> {
    /// Applies the state transform to the output's state, after every chunk was taken.
    pub(super) fn drained(&mut self) -> AgentEvent {
        if self.ledger.is_some() || !matches!(self.result, Some(Ok(_))) {
            return Event::Drained;
        }
        match self.shape(self.session.state()) {
            Ok(shown) => {
                self.shown = shown;
                Event::Drained
            }
            Err(error) => Event::TransformFailed(error),
        }
    }

    fn shape(&self, state: SessionState) -> Result<Option<SessionState>> {
        let transform = self.definition.state_transform.as_ref();
        shown_state(
            transform,
            state,
            Some(self.session.session_id()),
            self.client.context(),
        )
    }

    pub(super) fn output(&mut self, resolution: Resolution<Error>) -> Result<AgentOutput> {
        match resolution {
            Resolution::Completed => Ok(self.completed()),
            Resolution::Failed(cause) => Ok(self.failed(&error_of(cause))),
            Resolution::Detached => Ok(AgentOutput {
                snapshot_id: self.background.snapshot().cloned(),
                finish_reason: Some(AgentFinishReason::Detached),
                ..self.identity()
            }),
            Resolution::Rejected(cause) => Err(error_of(cause)),
        }
    }

    fn identity(&self) -> AgentOutput {
        AgentOutput {
            session_id: Some(self.session.session_id().clone()),
            snapshot_id: self.ledger.as_ref().and_then(InvocationCursor::last).cloned(),
            snapshot_ids: self.reported_rows(),
            ..AgentOutput::default()
        }
    }

    fn completed(&mut self) -> AgentOutput {
        let finish_reason = self.finish_reason();
        let AgentResult {
            message, artifacts, ..
        } = self.result.take().and_then(Result::ok).unwrap_or_default();
        AgentOutput {
            state: self.shown.take(),
            message,
            artifacts: (!artifacts.is_empty()).then_some(artifacts),
            finish_reason,
            ..self.identity()
        }
    }

    /// Returns the output of an invocation that failed, with the last good state. If the transform fails on that state too,
    /// the output holds none: the caller must learn of the first error.
    fn failed(&mut self, error: &Error) -> AgentOutput {
        let state = self
            .last_good
            .take()
            .and_then(|state| self.shape(state).ok().flatten());
        AgentOutput {
            state,
            finish_reason: Some(AgentFinishReason::Failed),
            error: Some(error.to_wire(exposure(self.client.context()))),
            ..self.identity()
        }
    }

    /// Returns the finish reason that the function gives, else that of the last turn.
    pub(super) fn finish_reason(&self) -> Option<AgentFinishReason> {
        let said = self
            .result
            .as_ref()
            .and_then(|result| result.as_ref().ok()?.finish_reason);
        said.or_else(|| self.turns.reason())
    }
}

/// Returns the error that the caller and the cancelled work are told.
pub(super) fn error_of(cause: Cause<Error>) -> Error {
    match cause {
        Cause::Function(error)
        | Cause::Transform(error)
        | Cause::LockRefused(error)
        | Cause::ClientGone(error) => error,
        Cause::DetachWithoutStore => no_store(),
        Cause::DetachWithoutSubscription => no_subscription(),
        Cause::PendingSnapshot(error) => no_pending_snapshot(error),
    }
}
