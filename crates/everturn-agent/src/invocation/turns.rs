//! The turn under way, and the wait for the session that may come before it.

use everturn_core::{Error, Result};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::outbox::Answer;
use super::turn::TurnStart;
use crate::turn_lock::{AwaitedLock, QueuedTurn};
use crate::{AgentFinishReason, AgentInput, SnapshotId};

/// The function's turn loop, as far as the driver must remember it.
#[derive(Default)]
pub(super) struct Turns {
    /// The loop that waits for a turn.
    asking: Option<Answer<Option<TurnStart>>>,
    /// The loop that waits for its turn to be settled.
    settling: Option<Answer<Option<SnapshotId>>>,
    /// How many turns were begun in this invocation.
    begun: usize,
    /// The number of the turn that runs.
    running: Option<usize>,
    /// The row reserved for the turn under way.
    reserved: Option<SnapshotId>,
    /// The row that holds the last turn, if it was written.
    row: Option<SnapshotId>,
    /// Why the last turn ended, if it succeeded and said so.
    reason: Option<AgentFinishReason>,
}

impl Turns {
    /// The turns of an invocation of which another worker has run that many.
    pub(super) fn after(begun: usize) -> Self {
        Self {
            begun,
            ..Self::default()
        }
    }

    /// How many turns are over; the one under way, if any, is the next.
    pub(super) fn over(&self) -> usize {
        self.begun - usize::from(self.reserved.is_some())
    }

    /// A loop waits; one that waited before has stopped.
    pub(super) fn ask(&mut self, answer: Answer<Option<TurnStart>>) {
        self.asking = Some(answer);
    }

    /// The loop that waits for a turn, if one still does.
    pub(super) fn waiting(&mut self) -> Option<Answer<Option<TurnStart>>> {
        self.asking.take().filter(|asking| !asking.is_closed())
    }

    pub(super) fn answer(&mut self, answer: Result<Option<TurnStart>>) {
        if let Some(asking) = self.asking.take() {
            let _ = asking.send(answer);
        }
    }

    /// The number of the turn that begins now.
    pub(super) fn begin(&mut self, reserved: Option<SnapshotId>) -> usize {
        self.reserved = reserved;
        self.row = None;
        self.reason = None;
        let number = self.begun;
        self.running = Some(number);
        self.begun += 1;
        number
    }

    /// The turn that was begun did not take place.
    pub(super) fn take_back(&mut self) {
        self.begun -= 1;
        self.running = None;
        self.reserved = None;
    }

    /// Whether the turn of this number has begun and not ended.
    pub(super) fn is_running(&self, number: usize) -> bool {
        self.running == Some(number)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn is_first(&self) -> bool {
        self.begun == 0
    }

    pub(super) fn end(
        &mut self,
        outcome: Result<Option<AgentFinishReason>>,
        settled: Option<Answer<Option<SnapshotId>>>,
    ) {
        self.running = None;
        self.reason = outcome.unwrap_or_default();
        self.settling = settled;
    }

    pub(super) fn committed(&mut self, row: SnapshotId) {
        self.row = Some(row);
    }

    pub(super) fn settle(&mut self, outcome: Result<(), Error>) {
        if outcome.is_err() {
            self.reason = None;
        }
        if let Some(settling) = self.settling.take() {
            // The loop may have been dropped while it waited.
            let _ = settling.send(outcome.map(|()| self.row.clone()));
        }
        self.reserved = None;
    }

    pub(super) fn reserved(&self) -> Option<&SnapshotId> {
        self.reserved.as_ref()
    }

    pub(super) fn row(&self) -> Option<&SnapshotId> {
        self.row.as_ref()
    }

    pub(super) fn reason(&self) -> Option<AgentFinishReason> {
        self.reason
    }
}

/// Turns and detached runs that wait for the session.
#[derive(Default)]
pub(super) struct Admissions {
    waiting: Option<BoxFuture<'static, Result<AwaitedLock>>>,
    /// The turn to start once the session is ours.
    pub(super) start: Option<(AgentInput, SnapshotId)>,
    /// The pending row to write once the session is ours.
    pub(super) detach: Option<(SnapshotId, Vec<AgentInput>)>,
}

impl Admissions {
    pub(super) fn wait(&mut self, turn: QueuedTurn) {
        self.waiting = Some(turn.wait().boxed());
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The next admission; waits for ever where none is due.
    pub(super) async fn next(&mut self) -> Result<AwaitedLock> {
        match &mut self.waiting {
            Some(waiting) => {
                let admitted = waiting.await;
                self.waiting = None;
                admitted
            }
            None => std::future::pending().await,
        }
    }

    /// Stops waiting on behalf of a turn and gives its input back.
    pub(super) fn give_up_start(&mut self) -> Option<AgentInput> {
        let (input, _) = self.start.take()?;
        if self.detach.is_none() {
            self.waiting = None;
        }
        Some(input)
    }
}
