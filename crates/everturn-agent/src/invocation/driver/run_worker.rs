//! A background run: its pending snapshot, its heartbeat, its end.

use std::time::Duration;

use everturn_ai::JsonObject;
use everturn_core::{Error, Principal, Result, SpanRecorder};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{AgentEvent, Driver, QueuedInput, Written};
use crate::invocation::function::Audience;
use crate::invocation::machine::{Ending, Event, TurnOutcome};
use crate::runs::RunEntry;
use crate::runs::run_stream::stream_key_in;
use crate::storage::snapshot::{BackgroundRun, Lease, Progress, RunEnd, Transition};
use crate::store::{JournalKey, Scope, StatusStream};
use crate::{
    AgentFinishReason, AgentStreamChunk, SessionState, Snapshot, SnapshotEvent, SnapshotId, SnapshotStatus,
    TurnEnd,
};

/// The background run that the invocation has become, if it has.
pub(super) struct RunWorker {
    every: Duration,
    run: Option<Run>,
    beats: Option<Interval>,
    statuses: Option<StatusStream>,
}

/// The run as this process holds it.
struct Run {
    snapshot: SnapshotId,
    lease: Lease,
    _entry: RunEntry,
}

/// Whether a worker still holds its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// The worker continues: it holds the lease, or is not known to have lost it.
    Kept,
    Aborted,
    /// The run's snapshot was deleted, or another worker has the lease.
    Lost,
}

impl Hold {
    /// Returns whether this worker still holds a run whose snapshot it could not write.
    fn on(snapshot: Option<&Snapshot>, lease: Lease) -> Result<Self> {
        Ok(match snapshot {
            Some(run) if matches!(run.status, SnapshotStatus::Aborted | SnapshotStatus::Aborting) => {
                Self::Aborted
            }
            Some(run) if run.status == SnapshotStatus::Pending && lease.holds(run)? => Self::Kept,
            _ => Self::Lost,
        })
    }

    pub(super) fn event(self) -> Option<AgentEvent> {
        match self {
            Self::Kept => None,
            Self::Aborted => Some(Event::AbortSeen),
            Self::Lost => Some(Event::LeaseLost),
        }
    }
}

/// The outcome of writing to the run's own snapshot.
pub(super) struct Rewritten {
    pub(super) is_written: bool,
    pub(super) hold: Hold,
}

impl RunWorker {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            run: None,
            beats: None,
            statuses: None,
        }
    }

    pub(super) fn snapshot(&self) -> Option<&SnapshotId> {
        self.run.as_ref().map(|run| &run.snapshot)
    }

    pub(super) fn start_beats(&mut self) {
        let mut beats = interval_at(Instant::now() + self.every, self.every);
        // A process that was asleep beats once when it wakes, not once for every missed interval.
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.beats = Some(beats);
    }

    pub(super) fn stop_beats(&mut self) {
        self.beats = None;
    }

    pub(super) fn watch(&mut self, statuses: Option<StatusStream>) {
        self.statuses = statuses;
    }

    /// Waits until the run is aborted, or a heartbeat is due.
    pub(super) async fn next(&mut self) -> AgentEvent {
        tokio::select! {
            // An abort that is already visible is handled before another heartbeat is written.
            biased;
            event = aborted(&mut self.statuses) => event,
            event = beat(self.beats.as_mut()) => event,
        }
    }
}

async fn aborted(statuses: &mut Option<StatusStream>) -> AgentEvent {
    while let Some(stream) = statuses {
        match stream.next().await {
            Some(SnapshotStatus::Aborted | SnapshotStatus::Aborting) => {
                *statuses = None;
                return Event::AbortSeen;
            }
            // Other statuses need no answer here: a lost lease is noticed by the next heartbeat.
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

impl Driver {
    /// Writes the pending snapshot of the run, under the id that was reserved for it.
    pub(super) fn write_pending(&mut self, inputs: Vec<QueuedInput>) {
        let (Some(cursor), Some(id)) = (&self.cursor, self.turns.reserved.clone()) else {
            return;
        };
        let now = self.definition.clock.now();
        let snapshot = cursor.next_snapshot(id);
        let mut snapshot = Snapshot {
            status: SnapshotStatus::Pending,
            heartbeat_at: Some(snapshot.created_at.max(now)),
            event: Some(SnapshotEvent::InvocationEnd),
            // Only if the parent snapshot does not hold the state at which the first input begins.
            state: self
                .snapshots
                .takeover
                .unsaved(|| SessionState::beginning(self.session.session_id())),
            ..snapshot
        };
        let run = BackgroundRun {
            agent: self.definition.name.clone(),
            lease: Lease::first(),
            attempts: 1,
            turns: self.turns.over(),
            inputs: inputs.into_iter().map(|input| *input).collect(),
            // A worker that takes over replays the turn that was in progress, from its beginning.
            turn: self.journals.begun().filter(|_| self.turns.is_under_way()),
            context: self.definition.recorded_context(self.client.context()),
            // Recorded only if it differs from the tenant under which the run is stored.
            tenant: Scope::brought_by(self.client.context())
                .filter(|tenant| tenant != cursor.tenant().scope()),
            principal: Principal::of(self.client.context()),
            of_client: self.client.context().is_for_client(),
            by_program: self.client.is_program(),
            used_before: Some(self.usage.before_invocation()).filter(|used| !used.is_zero()),
            used_in_turn: Some(self.usage.of_turn())
                .filter(|used| self.turns.is_under_way() && !used.is_zero()),
            extra: JsonObject::new(),
        };
        snapshot.set_background_run(run);
        snapshot.set_usage(self.used_until_now());
        snapshot.set_counted_with(if self.turns.is_under_way() {
            self.usage.counted_with()
        } else {
            self.counted_with(&snapshot.snapshot_id)
        });
        self.add_note(&mut snapshot);
        if let Some(span) = SpanRecorder::of(self.client.context()).trace_parent() {
            snapshot.set_origin(&span);
        }
        self.writes.push(
            cursor
                .create(snapshot, Vec::new())
                .map(|snapshot| Written::Pending(snapshot.map(Box::new)))
                .boxed(),
        );
    }

    /// Notes that this worker has the run from now on.
    pub(super) fn go_to_background(&mut self, snapshot: SnapshotId, lease: Lease) {
        // The heartbeat must not stop while the function computes.
        self.function.move_to_task();
        let scope = self
            .cursor
            .as_ref()
            .map(|cursor| cursor.tenant().scope().clone())
            .unwrap_or_default();
        let session = self.session.session_id();
        self.broadcast
            .begin(stream_key_in(&scope, session, &snapshot, lease.epoch()));
        let recorder = SpanRecorder::of(self.client.context());
        recorder.snapshot_id(snapshot.as_str());
        if lease == Lease::first() {
            recorder.event("detached", [("snapshotId", snapshot.as_str().into())]);
        }
        let entry = self.definition.runs.enter(scope, snapshot.clone());
        self.background.run = Some(Run {
            snapshot,
            lease,
            _entry: entry,
        });
    }

    /// Shows chunks to the watchers of the run from now on.
    pub(super) fn play_to_watchers(&mut self) {
        self.broadcast.expect();
        self.signals.play_to(Audience::Watchers);
        // The watchers have not received the custom state, so the next patch must be a whole document.
        self.session.live().arm_patcher();
    }

    /// Tells the watchers of the run where a turn ends.
    pub(super) fn tell_watchers_of_turn_end(&mut self, outcome: TurnOutcome) {
        if !self.broadcast.wants() {
            return;
        }
        let end = TurnEnd {
            snapshot_id: None,
            finish_reason: match outcome {
                TurnOutcome::Succeeded => self.turns.last.reason,
                TurnOutcome::Failed => Some(self.turns.last.failure()),
            },
            usage: self.usage.end_turn(),
            added: None,
        };
        // A transform that fails here fails no turn; the run continues unwatched.
        if let Some(Event::TransformFailed(error)) = self.show(AgentStreamChunk::turn_end(end).into()) {
            tracing::warn!(%error, "a background run is no longer shown");
        }
    }

    pub(super) fn record_progress(&mut self, inputs: Vec<QueuedInput>) {
        let progress = Box::new(Progress {
            turns: self.turns.over(),
            inputs: inputs.into_iter().map(|input| *input).collect(),
            state: self.session.state(),
            usage: self.used_until_now(),
        });
        let advance = |lease, now| Transition::Advance { lease, progress, now };
        match self.change_own(advance, self.turns_held()) {
            Some(recorded) => self.writes.push(recorded.map(Written::Progress).boxed()),
            None => self.raised.push_back(Event::ProgressRecorded),
        }
    }

    pub(super) fn beat(&mut self) {
        let heartbeat = |lease, now| Transition::Heartbeat { lease, now };
        if let Some(beat) = self.change_own(heartbeat, Vec::new()) {
            self.writes.push(beat.map(Written::Beat).boxed());
        }
    }

    /// Changes the run's snapshot while this worker holds its lease, drops the journals of the turns that the
    /// snapshot then holds, and returns whether the worker still holds the lease.
    fn change_own(
        &self,
        transition: impl FnOnce(Lease, Timestamp) -> Transition,
        journals: Vec<JournalKey>,
    ) -> Option<BoxFuture<'static, Rewritten>> {
        let (cursor, run) = (self.cursor.as_ref()?, self.background.run.as_ref()?);
        let lease = run.lease;
        let transition = transition(lease, self.definition.clock.now());
        let written = cursor.change(run.snapshot.clone(), transition, journals);
        let rewritten = async move {
            let (is_written, found) = written.await?;
            let hold = if is_written {
                Hold::Kept
            } else {
                Hold::on(found.as_ref(), lease)?
            };
            Ok::<_, Error>(Rewritten { is_written, hold })
        };
        let rewritten = rewritten.map(|rewritten| {
            rewritten.unwrap_or_else(|error| {
                tracing::warn!(%error, "a sign of life was not written");
                Rewritten {
                    is_written: false,
                    // A failed write is no evidence about the lease: the next heartbeat, or the next record,
                    // finds out.
                    hold: Hold::Kept,
                }
            })
        });
        Some(rewritten.boxed())
    }

    pub(super) fn finalize(&mut self, ending: Ending<Error>) {
        let (Some(cursor), Some(run)) = (&self.cursor, &self.background.run) else {
            self.raised.push_back(Event::FinalizeWritten);
            return;
        };
        if let Ending::Failed(error) = &ending {
            SpanRecorder::of(self.client.context()).mark_failed(error);
            self.failed_work().log("a background run", error);
        }
        // A failed or aborted run may be tried again, so it keeps its journals.
        let (journals, settled, turn) = match &ending {
            Ending::Completed => (self.turns_held(), self.journals.settled(), None),
            _ => (Vec::new(), Vec::new(), self.left_turn()),
        };
        let ending = match ending {
            Ending::Failed(error) if self.is_stop(&error) => Ending::Aborted(Some(error)),
            ending => ending,
        };
        let finish = Transition::Finish {
            lease: run.lease,
            end: Box::new(RunEnd {
                output: self
                    .outcome
                    .result
                    .as_ref()
                    .and_then(|result| result.as_ref().ok()?.output.clone()),
                usage: self.used_until_now(),
                turn,
                ..run_end(ending, self.finish_reason(), self.session.state())
            }),
            now: self.definition.clock.now(),
        };
        let written = cursor.change(run.snapshot.clone(), finish, journals);
        let written = async move {
            let (is_written, found) = written.await?;
            if is_written {
                join_all(settled).await;
            }
            // If nothing was written, the snapshot is already aborted, or another worker has the lease.
            let is_aborted = |snapshot: Snapshot| snapshot.status == SnapshotStatus::Aborted;
            Ok::<_, Error>(is_written || found.is_some_and(is_aborted))
        };
        self.writes.push(written.map(Written::Final).boxed());
    }
}

/// Converts the end of a run to its form in the snapshot.
fn run_end(ending: Ending<Error>, reason: Option<AgentFinishReason>, state: SessionState) -> RunEnd {
    let (status, finish_reason, error) = match ending {
        Ending::Completed => (SnapshotStatus::Completed, reason, None),
        Ending::Failed(error) => (
            SnapshotStatus::Failed,
            Some(AgentFinishReason::Failed),
            Some(error),
        ),
        Ending::Aborted(error) => (SnapshotStatus::Aborted, Some(AgentFinishReason::Aborted), error),
    };
    RunEnd {
        status,
        finish_reason,
        error: error.as_ref().map(Error::for_operator),
        state,
        output: None,
        usage: None,
        turn: None,
    }
}
