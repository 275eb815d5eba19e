//! A run that goes on without its client: its row, its signs of life, its end.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Error, Exposure};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{AgentEvent, Driver, Written};
use crate::agent::PENDING_INPUTS;
use crate::machine::{Ending, Event};
use crate::store::{Mutation, StatusStream};
use crate::{
    AgentFinishReason, AgentInput, CustomState, SessionState, Snapshot, SnapshotEvent, SnapshotId,
    SnapshotStatus,
};

/// What a detached run has beside its work.
pub(super) struct Background {
    every: Duration,
    row: Option<SnapshotId>,
    beats: Option<Interval>,
    statuses: Option<StatusStream>,
}

impl Background {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            row: None,
            beats: None,
            statuses: None,
        }
    }

    pub(super) fn begin(&mut self, row: SnapshotId) {
        self.row = Some(row);
    }

    pub(super) fn row(&self) -> Option<&SnapshotId> {
        self.row.as_ref()
    }

    pub(super) fn start_beats(&mut self) {
        let mut beats = interval_at(Instant::now() + self.every, self.every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.beats = Some(beats);
    }

    pub(super) fn stop_beats(&mut self) {
        self.beats = None;
    }

    pub(super) fn watch(&mut self, statuses: Option<StatusStream>) {
        self.statuses = statuses;
    }

    /// The next thing that happens to the run's row.
    pub(super) async fn next(&mut self) -> AgentEvent {
        tokio::select! {
            biased;
            event = aborted(&mut self.statuses) => event,
            event = beat(self.beats.as_mut()) => event,
        }
    }
}

async fn aborted(statuses: &mut Option<StatusStream>) -> AgentEvent {
    while let Some(stream) = statuses {
        match stream.next().await {
            Some(SnapshotStatus::Aborted) => {
                *statuses = None;
                return Event::AbortSeen;
            }
            Some(_) => {}
            None => *statuses = None,
        }
    }
    std::future::pending().await
}

async fn beat(beats: Option<&mut Interval>) -> AgentEvent {
    match beats {
        Some(beats) => {
            beats.tick().await;
            Event::HeartbeatDue
        }
        None => std::future::pending().await,
    }
}

impl<S: CustomState> Driver<S> {
    /// Writes the pending row of a detached run, as soon as the session is ours.
    pub(super) fn write_pending(&mut self, id: SnapshotId, inputs: Vec<AgentInput>) {
        let Some(ledger) = &self.ledger else {
            return;
        };
        let now = ledger.now();
        let row = ledger.row(id);
        let mut row = Snapshot {
            status: SnapshotStatus::Pending,
            heartbeat_at: Some(row.created_at.max(now)),
            event: Some(SnapshotEvent::InvocationEnd),
            ..row
        };
        if !inputs.is_empty() {
            let inputs = serde_json::to_value(inputs).expect("inputs are plain data");
            row.extra.insert(PENDING_INPUTS.to_owned(), inputs);
        }
        self.writes.push(
            ledger
                .create(row, Vec::new())
                .map(|row| Written::Pending(row.map(Box::new)))
                .boxed(),
        );
    }

    pub(super) fn beat(&mut self) {
        let (Some(ledger), Some(row)) = (&self.ledger, self.background.row()) else {
            return;
        };
        let now = ledger.now();
        let renew: Mutation = Arc::new(move |row| {
            let pending = row.filter(|row| row.status == SnapshotStatus::Pending);
            Ok(pending.map(|row| Snapshot {
                heartbeat_at: Some(now),
                ..row.clone()
            }))
        });
        let renewed = ledger.rewrite(row.clone(), renew, Vec::new());
        let status = ledger.status(row.clone());
        let beat = async move {
            if renewed.await?.is_some() {
                return Ok(None);
            }
            Ok::<_, Error>(match status.await? {
                Some(SnapshotStatus::Aborted) => Some(Event::AbortSeen),
                Some(SnapshotStatus::Pending) => None,
                _ => Some(Event::LeaseLost),
            })
        };
        self.writes.push(
            beat.map(|found| {
                Written::Beat(found.unwrap_or_else(|error| {
                    tracing::debug!(%error, "a sign of life was not written");
                    None
                }))
            })
            .boxed(),
        );
    }

    pub(super) fn finalize(&mut self, ending: Ending<Error>) {
        let (Some(ledger), Some(row)) = (&self.ledger, self.background.row()) else {
            self.raised.push_back(Event::FinalizeWritten);
            return;
        };
        // A run that failed or was aborted may be tried again from where it began.
        let journals = match &ending {
            Ending::Completed => self.journals.written(),
            _ => Vec::new(),
        };
        let end = End::new(ending, self.finish_reason(), self.session.state(), ledger.now());
        let written = ledger.rewrite(row.clone(), Arc::new(move |row| Ok(end.write(row))), journals);
        let status = ledger.status(row.clone());
        let written = async move {
            match written.await? {
                Some(_) => Ok(true),
                // Nothing to write: the row says already that it was aborted, or it is not ours any more.
                None => Ok::<_, Error>(status.await? == Some(SnapshotStatus::Aborted)),
            }
        };
        self.writes.push(written.map(Written::Final).boxed());
    }
}

/// How a run ended, as its row will say.
struct End {
    status: SnapshotStatus,
    reason: Option<AgentFinishReason>,
    error: Option<Error>,
    state: SessionState,
    now: Timestamp,
}

impl End {
    fn new(
        ending: Ending<Error>,
        reason: Option<AgentFinishReason>,
        state: SessionState,
        now: Timestamp,
    ) -> Self {
        let (status, reason, error) = match ending {
            Ending::Completed => (SnapshotStatus::Completed, reason, None),
            Ending::Failed(error) => (
                SnapshotStatus::Failed,
                Some(AgentFinishReason::Failed),
                Some(error),
            ),
            Ending::Aborted(error) => (SnapshotStatus::Aborted, Some(AgentFinishReason::Aborted), error),
        };
        Self {
            status,
            reason,
            error,
            state,
            now,
        }
    }

    /// The row's last form. A row that was aborted stays so, whatever the run came to, and only learns that it is over.
    fn write(&self, row: Option<&Snapshot>) -> Option<Snapshot> {
        let row = row?;
        let mut last = Snapshot {
            updated_at: Some(self.now.max(row.created_at)),
            heartbeat_at: None,
            ..row.clone()
        };
        last.extra.shift_remove(PENDING_INPUTS);
        match row.status {
            SnapshotStatus::Pending => Some(Snapshot {
                status: self.status,
                finish_reason: self.reason,
                error: self.error.as_ref().map(|error| error.to_wire(Exposure::Full)),
                state: Some(self.state.clone()),
                ..last
            }),
            SnapshotStatus::Aborted if row.finish_reason != Some(AgentFinishReason::Aborted) => {
                Some(Snapshot {
                    finish_reason: Some(AgentFinishReason::Aborted),
                    ..last
                })
            }
            _ => None,
        }
    }
}

/// Why a detach is refused.
pub(super) fn no_store() -> Error {
    Error::failed_precondition("a detach needs a session store, and the agent has none")
}

/// Why a detach is refused.
pub(super) fn no_subscription() -> Error {
    Error::failed_precondition(
        "a detach needs a store that tells when a row changes, and the agent's does not",
    )
}

/// Why a detach did not come about.
pub(super) fn no_pending_row(error: Error) -> Error {
    error.context("the pending snapshot could not be saved")
}
