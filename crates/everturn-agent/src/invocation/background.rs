//! A run that goes on without its client: its row, its signs of life, its end.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Error, Exposure, Result};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::machine::{Ending, Event};
use super::{AgentEvent, Driver, Written};
use crate::lease::{Lease, RunRecord};
use crate::run_stream::stream_key;
use crate::runs::RunEntry;
use crate::store::{JournalKey, Scope, StatusStream};
use crate::{
    AgentFinishReason, AgentInput, AgentStreamChunk, CustomState, SessionState, Snapshot, SnapshotEvent,
    SnapshotId, SnapshotStatus, TurnEnd,
};

/// What a detached run has beside its work.
pub(super) struct Background {
    every: Duration,
    run: Option<Run>,
    beats: Option<Interval>,
    statuses: Option<StatusStream>,
}

/// The run as this process holds it.
struct Run {
    row: SnapshotId,
    lease: Lease,
    _entry: RunEntry,
}

/// How a worker stands to its run's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may go on: the row is its own, or nothing is known to the contrary.
    Good,
    Aborted,
    /// The row is gone, or another worker's.
    Fenced,
}

impl Standing {
    /// How a worker stands to a row that it could not write.
    fn to(row: Option<&Snapshot>, lease: Lease) -> Self {
        match row {
            Some(row) if row.status == SnapshotStatus::Aborted => Self::Aborted,
            Some(row) if row.status == SnapshotStatus::Pending && lease.is_on(row) => Self::Good,
            _ => Self::Fenced,
        }
    }

    pub(super) fn event(self) -> Option<AgentEvent> {
        match self {
            Self::Good => None,
            Self::Aborted => Some(Event::AbortSeen),
            Self::Fenced => Some(Event::LeaseLost),
        }
    }
}

/// What came of writing to the run's own row.
pub(super) struct Rewritten {
    pub(super) is_written: bool,
    pub(super) standing: Standing,
}

impl Background {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            run: None,
            beats: None,
            statuses: None,
        }
    }

    pub(super) fn row(&self) -> Option<&SnapshotId> {
        self.run.as_ref().map(|run| &run.row)
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
            state: self.snapshots.boundary().beside().cloned(),
            ..row
        };
        let record = RunRecord {
            agent: self.definition.name.clone(),
            lease: Lease::first(),
            attempts: 1,
            turns: self.turns.over(),
            inputs,
            turn: self.journals.begun().filter(|_| self.turns.is_under_way()),
            context: self.definition.recorded_context(self.client.context()),
            tenant: Scope::brought_by(self.client.context()).filter(|tenant| tenant != ledger.scope()),
        };
        record.put(&mut row);
        self.writes.push(
            ledger
                .create(row, Vec::new())
                .map(|row| Written::Pending(row.map(Box::new)))
                .boxed(),
        );
    }

    /// The run is this worker's from now on.
    pub(super) fn go_to_background(&mut self, row: SnapshotId, lease: Lease) {
        let scope = self
            .ledger
            .as_ref()
            .map(|ledger| ledger.scope().clone())
            .unwrap_or_default();
        self.broadcast.begin(stream_key(&scope, &row, lease.epoch()));
        let entry = self.definition.runs.enter(scope, row.clone());
        if let Some(ledger) = &self.ledger {
            ledger.hold(lease);
        }
        self.background.run = Some(Run {
            row,
            lease,
            _entry: entry,
        });
    }

    /// The client hears nothing any more; from now on chunks are for those who watch the run.
    pub(super) fn play_to_watchers(&mut self) {
        self.broadcast.expect();
        self.outbox.play_to_watchers();
        // Watchers were not told what the custom state was before.
        self.session.arm_patcher();
    }

    /// Nobody counts the turns of a run on the wire, but those who watch it want to know where one ends.
    pub(super) fn tell_watchers_of_turn_end(&mut self, outcome: &Result<Option<AgentFinishReason>>) {
        if !self.broadcast.wants() {
            return;
        }
        let end = TurnEnd {
            snapshot_id: None,
            finish_reason: match outcome {
                Ok(reason) => *reason,
                Err(_) => Some(AgentFinishReason::Failed),
            },
        };
        // What fails here has failed on its own account; the run goes on unwatched.
        if let Some(Event::TransformFailed(error)) = self.show(AgentStreamChunk::turn_end(end).into()) {
            tracing::warn!(%error, "a background run is no longer shown");
        }
    }

    pub(super) fn record_progress(&mut self, inputs: Vec<AgentInput>) {
        let (state, turns) = (self.session.state(), self.turns.over());
        let recorded = self.rewrite_own(
            move |lease, row, now| RunRecord::advanced(lease, row, turns, &inputs, &state, now),
            self.journals.written(),
        );
        match recorded {
            Some(recorded) => self.writes.push(recorded.map(Written::Progress).boxed()),
            None => self.raised.push_back(Event::ProgressRecorded),
        }
    }

    pub(super) fn beat(&mut self) {
        if let Some(beat) = self.rewrite_own(Lease::renewed, Vec::new()) {
            self.writes.push(beat.map(Written::Beat).boxed());
        }
    }

    /// Rewrites the run's row as long as it is this worker's, drops the journals of the turns it then holds, and says how
    /// the worker stands to it.
    fn rewrite_own(
        &self,
        change: impl Fn(Lease, Option<&Snapshot>, Timestamp) -> Option<Snapshot> + Send + Sync + 'static,
        journals: Vec<JournalKey>,
    ) -> Option<BoxFuture<'static, Rewritten>> {
        let (ledger, run) = (self.ledger.as_ref()?, self.background.run.as_ref()?);
        let (lease, now) = (run.lease, ledger.now());
        let mutation = Arc::new(move |row: Option<&Snapshot>| Ok(change(lease, row, now)));
        let written = ledger.rewrite(run.row.clone(), mutation, journals);
        let found = ledger.read(run.row.clone());
        let rewritten = async move {
            let is_written = written.await?.is_some();
            let standing = if is_written {
                Standing::Good
            } else {
                Standing::to(found.await?.as_ref(), lease)
            };
            Ok::<_, Error>(Rewritten { is_written, standing })
        };
        let rewritten = rewritten.map(|rewritten| {
            rewritten.unwrap_or_else(|error| {
                tracing::debug!(%error, "a sign of life was not written");
                Rewritten {
                    is_written: false,
                    standing: Standing::Good,
                }
            })
        });
        Some(rewritten.boxed())
    }

    pub(super) fn finalize(&mut self, ending: Ending<Error>) {
        let (Some(ledger), Some(run)) = (&self.ledger, &self.background.run) else {
            self.raised.push_back(Event::FinalizeWritten);
            return;
        };
        // A run that failed or was aborted may be tried again from where it began.
        let journals = match &ending {
            Ending::Completed => self.journals.written(),
            _ => Vec::new(),
        };
        let (reason, state) = (self.finish_reason(), self.session.state());
        let end = End::new(run.lease, ending, reason, state, ledger.now());
        let written = ledger.rewrite(run.row.clone(), Arc::new(move |row| Ok(end.write(row))), journals);
        let found = ledger.read(run.row.clone());
        let written = async move {
            match written.await? {
                Some(_) => Ok(true),
                // Nothing to write: the row says already that it was aborted, or it is not ours any more.
                None => Ok::<_, Error>(
                    found
                        .await?
                        .is_some_and(|row| row.status == SnapshotStatus::Aborted),
                ),
            }
        };
        self.writes.push(written.map(Written::Final).boxed());
    }
}

/// How a run ended, as its row will say.
struct End {
    lease: Lease,
    status: SnapshotStatus,
    reason: Option<AgentFinishReason>,
    error: Option<Error>,
    state: SessionState,
    now: Timestamp,
}

impl End {
    fn new(
        lease: Lease,
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
            lease,
            status,
            reason,
            error,
            state,
            now,
        }
    }

    /// The row's last form, if it is still this worker's to write. A row that was aborted stays so, whatever the run came
    /// to, and only learns that it is over.
    fn write(&self, row: Option<&Snapshot>) -> Option<Snapshot> {
        let row = row.filter(|row| self.lease.is_on(row))?;
        let mut last = Snapshot {
            updated_at: Some(self.now.max(row.created_at)),
            heartbeat_at: None,
            ..row.clone()
        };
        RunRecord::clear(&mut last);
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
