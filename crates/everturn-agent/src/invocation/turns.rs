//! The turn under way.

use everturn_core::{Error, Result};

use super::outbox::Answer;
use super::turn::TurnStart;
use crate::{AgentFinishReason, SnapshotId};

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
    /// Whether the turn that began last is yet to be settled.
    unsettled: bool,
    /// The id reserved for the turn under way, or for the background run.
    reserved: Option<SnapshotId>,
    /// The snapshot that holds the last turn, if it was written.
    snapshot: Option<SnapshotId>,
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
        self.begun - usize::from(self.unsettled)
    }

    /// Reserves a snapshot id for the next turn, or for the background run.
    pub(super) fn reserve(&mut self) -> SnapshotId {
        self.reserved.insert(SnapshotId::fresh()).clone()
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

    /// Begins a turn and returns its number.
    pub(super) fn begin(&mut self) -> usize {
        self.snapshot = None;
        self.reason = None;
        self.unsettled = true;
        let number = self.begun;
        self.running = Some(number);
        self.begun += 1;
        number
    }

    /// Counts a turn that could not begin, and tells the loop that waits for it.
    pub(super) fn fail(&mut self, error: Error) {
        self.begun += 1;
        self.snapshot = None;
        self.reason = None;
        self.answer(Err(error));
    }

    /// The turn that was begun did not take place.
    pub(super) fn take_back(&mut self) {
        self.begun -= 1;
        self.running = None;
        self.unsettled = false;
    }

    /// Whether the turn of this number has begun and not ended.
    pub(super) fn is_running(&self, number: usize) -> bool {
        self.running == Some(number)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.running.is_some()
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

    pub(super) fn committed(&mut self, snapshot: SnapshotId) {
        self.snapshot = Some(snapshot);
    }

    pub(super) fn settle(&mut self, outcome: Result<(), Error>) {
        if outcome.is_err() {
            self.reason = None;
        }
        if let Some(settling) = self.settling.take() {
            // The loop may have been dropped while it waited.
            let _ = settling.send(outcome.map(|()| self.snapshot.clone()));
        }
        self.unsettled = false;
    }

    pub(super) fn reserved(&self) -> Option<&SnapshotId> {
        self.reserved.as_ref()
    }

    pub(super) fn snapshot(&self) -> Option<&SnapshotId> {
        self.snapshot.as_ref()
    }

    pub(super) fn reason(&self) -> Option<AgentFinishReason> {
        self.reason
    }
}
