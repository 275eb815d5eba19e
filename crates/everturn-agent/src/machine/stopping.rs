//! The work was cancelled while its outcome was still the client's to hear; the function has yet to return.

use super::draining::resolve;
use super::state::{Meanwhile, Step};
use super::{Cause, Command, EndOfInput, Event, Resolution, TurnOutcome};

/// Rests only while the function runs or a commit is in flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Stopping<E> {
    cause: Cause<E>,
    client_gone: bool,
    commit_in_flight: bool,
    returned: Option<Result<(), E>>,
}

impl<E> Stopping<E> {
    pub(super) fn because(cause: Cause<E>) -> Self {
        let client_gone = matches!(cause, Cause::ClientGone(_));
        Self {
            cause,
            client_gone,
            commit_in_flight: false,
            returned: None,
        }
    }

    /// The last turn is being made durable; that write is not cancelled but awaited.
    pub(super) fn with_commit_in_flight(mut self) -> Self {
        self.commit_in_flight = true;
        self
    }

    /// Tells whether the client left before the cause arose.
    pub(super) fn with_client_gone(mut self, client_gone: bool) -> Self {
        self.client_gone = client_gone;
        self
    }

    /// Cancels the work, or what is left of it.
    pub(super) fn begin<I>(mut self, function: Meanwhile<E>) -> Step<I, E> {
        match function {
            Meanwhile::Running => Step::to(self).emit(Command::CancelWork),
            Meanwhile::Asking => Step::to(self)
                .emit(Command::CancelWork)
                .emit(Command::EndInput(EndOfInput::Cancelled)),
            Meanwhile::Returned(result) => {
                if let Err(error) = result {
                    // It failed before the work was cancelled, so not because of that.
                    self.cause = Cause::Function(error);
                }
                self.finish(Ok(()))
            }
        }
    }

    pub(super) fn handle<I>(mut self, event: Event<I, E>) -> Step<I, E> {
        match event {
            Event::NextInput => Step::to(self).emit(Command::EndInput(EndOfInput::Cancelled)),
            Event::TurnEnded(outcome) => self.end_turn(outcome),
            Event::TurnCommitted => self.settle(Ok(())),
            Event::CommitFailed(error) => self.settle(Err(error)),
            Event::Returned(result) => self.finish(result),
            Event::ClientGone(_) => {
                self.client_gone = true;
                Step::to(self)
            }
            _ => Step::to(self),
        }
    }

    fn end_turn<I>(self, outcome: TurnOutcome) -> Step<I, E> {
        if outcome == TurnOutcome::Succeeded && self.rows_are_written() {
            Step::to(self.with_commit_in_flight()).emit(Command::CommitTurn)
        } else {
            Step::to(self).emit(Command::SettleTurn(Ok(())))
        }
    }

    /// A detach suspends turn rows, and its failure does not bring them back.
    fn rows_are_written(&self) -> bool {
        !matches!(self.cause, Cause::PendingRow(_))
    }

    fn settle<I>(mut self, commit: Result<(), E>) -> Step<I, E> {
        if !self.commit_in_flight {
            return Step::to(self);
        }
        self.commit_in_flight = false;
        self.resolve_when_done()
            .preceded_by([Command::SettleTurn(commit)])
    }

    fn finish<I>(mut self, result: Result<(), E>) -> Step<I, E> {
        self.returned = Some(result);
        self.resolve_when_done()
    }

    fn resolve_when_done<I>(mut self) -> Step<I, E> {
        if self.commit_in_flight {
            return Step::to(self);
        }
        match self.returned.take() {
            None => Step::to(self),
            Some(result) => resolve(self.resolution(result)),
        }
    }

    fn resolution(self, result: Result<(), E>) -> Resolution<E> {
        match (self.cause, result) {
            (Cause::ClientGone(_), Err(error)) => Resolution::Rejected(Cause::Function(error)),
            (cause @ (Cause::ClientGone(_) | Cause::InvalidInput(_)), _) => Resolution::Rejected(cause),
            (cause, _) if self.client_gone => Resolution::Rejected(cause),
            (cause, _) => Resolution::Failed(cause),
        }
    }
}
