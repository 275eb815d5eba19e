//! Where the rows of one invocation go: after which row, under which claim, with which precondition.

mod new_row;
mod whereabouts;

use std::sync::Arc;

use everturn_core::Result;
use jiff::{SignedDuration, Timestamp};

pub(crate) use self::new_row::Saved;
use self::new_row::{Back, NewRow};
use self::whereabouts::Whereabouts;
use crate::journal::{OpenTurn, Place, turn_key, turn_over};
use crate::lease::Lease;
use crate::store::{
    Detail, JournalGuard, JournalKey, Mutation, Precondition, Scope, SessionStore, StatusStream,
    drop_journals, tip_moved,
};
use crate::turn_lock::{AwaitedLock, LockAnswer, QueuedTurn, TurnLock, TurnLockGuard};
use crate::{
    AgentInput, Clock, Concurrency, SessionId, Snapshot, SnapshotEvent, SnapshotId, SnapshotIds,
    SnapshotStatus, Timeline,
};

/// An invocation's place among the rows of its session.
pub(crate) struct Ledger {
    store: Arc<dyn SessionStore>,
    scope: Scope,
    session_id: SessionId,
    clock: Clock,
    policy: Concurrency,
    timeline: Timeline,
    ids: SnapshotIds,
    turn_lock: Arc<TurnLock>,
    held: Option<TurnLockGuard>,
    /// The row the next one goes on from.
    last: Option<Mark>,
    /// The session's latest row as far as this invocation knows.
    tip: Option<Mark>,
    /// Whether the next row goes to the tip; if not, it begins a branch.
    at_tip: bool,
    /// On a linear timeline, the return to an earlier row that the next row carries out.
    rewind: Option<Back>,
    /// The turn that another worker began and this one takes up first.
    taken_up: Option<OpenTurn>,
    /// Where the invocation stands, for whoever must know it while a turn runs.
    whereabouts: Arc<Whereabouts>,
}

/// What a row's successor must know of it.
#[derive(Debug, Clone, PartialEq)]
struct Mark {
    id: SnapshotId,
    created_at: Timestamp,
    index: Option<u64>,
    turn_index: Option<u64>,
    event: Option<SnapshotEvent>,
    /// The turn that the row is in the middle of.
    turn: Option<OpenTurn>,
}

impl From<&Snapshot> for Mark {
    fn from(row: &Snapshot) -> Self {
        Self {
            id: row.snapshot_id.clone(),
            created_at: row.created_at,
            index: row.index,
            turn_index: row.turn_index,
            event: row.event,
            turn: OpenTurn::of(row),
        }
    }
}

impl Ledger {
    pub(crate) fn new(
        store: Arc<dyn SessionStore>,
        scope: Scope,
        session_id: SessionId,
        policy: Concurrency,
        clock: Clock,
    ) -> Self {
        let turn_lock = Arc::new(TurnLock::of(&store, &scope, &session_id));
        Self {
            store,
            scope,
            session_id,
            clock,
            policy,
            timeline: Timeline::default(),
            ids: SnapshotIds::default(),
            turn_lock,
            held: None,
            last: None,
            tip: None,
            at_tip: true,
            rewind: None,
            taken_up: None,
            whereabouts: Arc::default(),
        }
    }

    /// The same place, on such a timeline, with rows named in such a way.
    pub(crate) fn with_rules(self, timeline: Timeline, ids: SnapshotIds) -> Self {
        Self {
            timeline,
            ids,
            ..self
        }
    }

    /// Goes on from exactly this row, where `latest` is the session's latest: below it, that begins a branch or, on a
    /// linear timeline, a rewind.
    pub(crate) fn resume_from(&mut self, row: &Snapshot, latest: Option<&Snapshot>) {
        self.move_tip(latest.map(Mark::from));
        self.go_back_to(row);
    }

    /// Goes on from an earlier row, or from the tip.
    fn go_back_to(&mut self, row: &Snapshot) {
        self.last = Some(Mark::from(row));
        self.at_tip = self.last() == self.tip_id();
        let rewinds = !self.at_tip && self.timeline == Timeline::Linear;
        self.rewind = rewinds.then(|| Back::To(row.snapshot_id.clone()));
    }

    /// Goes on where the session is: after its latest row. `good` is that row, or an older one that stands in for it
    /// because nobody can go on from it.
    pub(crate) fn resume_latest(&mut self, good: Option<&Snapshot>, latest: Option<&Snapshot>) {
        self.last = good.map(Mark::from);
        self.move_tip(latest.map(Mark::from));
        self.at_tip = true;
    }

    /// Goes on with the background run behind `row`, which comes after `parent`, beginning with the turn that was under way,
    /// and keeps others of this process from the session if none of them has it.
    pub(crate) fn take_over(&mut self, row: &Snapshot, parent: Option<&Snapshot>, turn: Option<OpenTurn>) {
        self.taken_up = turn;
        self.last = parent.map(Mark::from);
        self.move_tip(Some(Mark::from(row)));
        // What the run writes is its row, which is there; so nothing depends on the turn lock.
        let _ = self.take_lock(&row.snapshot_id);
    }

    /// Whose rows these are.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    fn move_tip(&mut self, tip: Option<Mark>) {
        self.whereabouts.set_tip(tip.as_ref().map(|mark| &mark.id));
        self.tip = tip;
    }

    /// The invocation goes on as a background run, under this claim.
    pub(crate) fn hold(&self, lease: Lease) {
        self.whereabouts.hold(lease);
    }

    pub(crate) fn can_watch(&self) -> bool {
        self.store.can_watch()
    }

    /// The last row this invocation committed or resumed from.
    pub(crate) fn last(&self) -> Option<&SnapshotId> {
        self.last.as_ref().map(|mark| &mark.id)
    }

    fn tip_id(&self) -> Option<&SnapshotId> {
        self.tip.as_ref().map(|mark| &mark.id)
    }

    /// Whether the next row must land at the tip. A rewind must, lest it leaves behind what it never saw.
    fn is_exclusive(&self) -> bool {
        (self.at_tip || self.timeline == Timeline::Linear) && self.policy != Concurrency::Fork
    }

    /// Asks for the session's turn lock, for a turn or a background run of that id.
    ///
    /// # Errors
    /// `ABORTED` if the policy is to reject and another turn holds the session or has moved its tip.
    pub(crate) fn take_lock(&mut self, turn: &SnapshotId) -> Result<LockAnswer> {
        if !self.is_exclusive() || self.held.is_some() {
            return Ok(LockAnswer::Granted);
        }
        let taken = self
            .turn_lock
            .try_take(turn)
            .and_then(|guard| match self.turn_lock.tip() {
                Some(tip) if Some(&tip) != self.tip_id() => {
                    Err(tip_moved(&self.session_id, self.tip_id(), Some(&tip)))
                }
                _ => Ok(guard),
            });
        match taken {
            Ok(guard) => {
                self.held = Some(guard);
                Ok(LockAnswer::Granted)
            }
            Err(_) if self.policy == Concurrency::Queue => Ok(LockAnswer::Queued(QueuedTurn {
                store: Arc::clone(&self.store),
                scope: self.scope.clone(),
                session_id: self.session_id.clone(),
                lock: Arc::clone(&self.turn_lock),
                turn: turn.clone(),
                known_tip: self.tip_id().cloned(),
            })),
            Err(error) => Err(error),
        }
    }

    /// Keeps the turn lock that was waited for; returns the row to go on from if the session moved on.
    pub(crate) fn keep_lock(&mut self, awaited: AwaitedLock) -> Option<Snapshot> {
        self.held = Some(awaited.guard);
        let row = awaited.moved_to?;
        self.move_tip(Some(Mark::from(&row)));
        // A rewind goes back to where it was asked to, whatever came after.
        if self.rewind.is_some() {
            return None;
        }
        self.last.clone_from(&self.tip);
        Some(row)
    }

    /// The number of the next turn in the line of ancestors. A turn that has only rows from its middle did not come to
    /// its end and does not count.
    pub(crate) fn next_turn(&self) -> u64 {
        let number = |mark: &Mark| match mark.event {
            Some(SnapshotEvent::ToolIterationEnd) => mark.turn_index,
            _ => mark.turn_index.map(|turn| turn + 1),
        };
        self.last.as_ref().and_then(number).unwrap_or_default()
    }

    /// Lets others have the session.
    pub(crate) fn release_lock(&mut self) {
        self.held = None;
    }

    fn precondition(&self) -> Precondition {
        if self.is_exclusive() {
            Precondition::Tip(self.tip_id().cloned())
        } else {
            Precondition::None
        }
    }

    /// A new row after the last one. It sorts after both its parent and the tip, whatever the clocks of other processes
    /// say, so that the latest row of a session is the one committed last.
    pub(crate) fn row(&self, id: SnapshotId) -> Snapshot {
        let after = |mark: &Mark| mark.created_at.saturating_add(SignedDuration::from_micros(1));
        let floor = [&self.last, &self.tip]
            .into_iter()
            .flatten()
            .filter_map(|mark| after(mark).ok())
            .max();
        let now = self.clock.now();
        let created_at = floor.map_or(now, |floor| floor.max(now));
        let next = |number: Option<u64>| number.map_or(0, |number| number + 1);
        Snapshot {
            parent_id: self.last().cloned(),
            updated_at: Some(created_at),
            index: Some(next(self.tip.as_ref().and_then(|mark| mark.index))),
            turn_index: Some(self.next_turn()),
            event: Some(SnapshotEvent::TurnEnd),
            ..Snapshot::new(id, self.session_id.clone(), created_at)
        }
    }

    /// Where the journal of a turn is kept that begins in a conversation of that length; `None` if the store keeps none.
    pub(crate) fn journal(&self, length: usize, input: &AgentInput, reserved: &SnapshotId) -> Option<Place> {
        self.store.journal()?;
        let begun = self.open_turn(input);
        // Turns that look the same may run side by side only where the agent wants it so.
        let own = Some(reserved).filter(|_| self.policy == Concurrency::Fork);
        Some(Place {
            store: Arc::clone(&self.store),
            scope: self.scope.clone(),
            key: begun.map_or_else(
                || turn_key(&self.session_id, self.last(), length, input, own),
                |turn| turn.journal(&self.session_id),
            ),
            past: begun.map_or(0, |turn| turn.records),
            guard: self.guard(reserved),
        })
    }

    /// The turn that goes on with this input, if it began before: another worker's, or the one whose middle was resumed
    /// without a word. Where identical turns may run side by side, the latter could be under way.
    fn open_turn(&self, input: &AgentInput) -> Option<&OpenTurn> {
        let resumed = || self.last.as_ref()?.turn.as_ref();
        let goes_on = !input.has_payload() && self.policy != Concurrency::Fork;
        self.taken_up.as_ref().or_else(|| resumed().filter(|_| goes_on))
    }

    /// The turn is over. What comes next is another, unless it failed in the middle and is let go on from there.
    pub(crate) fn turn_ended(&mut self, stands: bool) {
        self.taken_up = None;
        if let Some(last) = self.last.as_mut().filter(|_| stands) {
            last.turn = None;
        }
    }

    /// A turn may act for as long as its row could still be written: it is not there yet and the session is where the turn
    /// began, or it is that of a background run which is not over and not another worker's.
    fn guard(&self, reserved: &SnapshotId) -> JournalGuard {
        let (session, whereabouts) = (self.session_id.clone(), Arc::clone(&self.whereabouts));
        let is_exclusive = self.is_exclusive();
        JournalGuard::new(reserved.clone(), move |row, latest| match row {
            Some(row) if row.status == SnapshotStatus::Pending && whereabouts.holds(row) => Ok(()),
            Some(row) => Err(turn_over(&row.snapshot_id)),
            None if is_exclusive => whereabouts.check_tip(&session, latest),
            None => Ok(()),
        })
    }

    /// Drops the journals of turns that are over and have no row.
    pub(crate) fn forget(&self, journals: Vec<JournalKey>) -> impl Future<Output = ()> + Send + use<> {
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        async move {
            if let Some(journal) = store.journal() {
                drop_journals(journal, &scope, &journals).await;
            }
        }
    }

    /// Writes a new row, which holds the turns of these journals. Report what it returns to [`Ledger::wrote`].
    pub(crate) fn create(
        &self,
        row: Snapshot,
        journals: Vec<JournalKey>,
    ) -> impl Future<Output = Result<Saved>> + Send + use<> {
        let is_named_by_content =
            self.ids == SnapshotIds::ContentAddressed && row.snapshot_id.is_content_addressed();
        // On a linear timeline there is one line, whichever row a turn comes to.
        let only_line = self.tip_id().filter(|_| self.timeline == Timeline::Linear);
        let new = NewRow {
            store: Arc::clone(&self.store),
            scope: self.scope.clone(),
            session: self.session_id.clone(),
            precondition: self.precondition(),
            rewind: self.rewind.clone(),
            may_be_there: is_named_by_content,
            only_line: only_line.cloned(),
            row,
            journals,
        };
        new.write()
    }

    /// Takes note of a row that was saved: it is now the session's latest, unless it was there before and the session may
    /// branch.
    pub(crate) fn wrote(&mut self, saved: &Saved) {
        let row = &saved.row;
        if !saved.is_tip {
            return self.go_back_to(row);
        }
        self.rewind = saved.unfinished.clone().map(Back::Unfinished);
        self.turn_lock.committed(&row.snapshot_id);
        self.move_tip(Some(Mark::from(row)));
        self.at_tip = true;
        if row.status == SnapshotStatus::Completed {
            self.last.clone_from(&self.tip);
        }
    }

    /// Rewrites a row, which then holds the turns of these journals.
    pub(crate) fn rewrite(
        &self,
        id: SnapshotId,
        mutation: Mutation,
        journals: Vec<JournalKey>,
    ) -> impl Future<Output = Result<Option<Snapshot>>> + Send + use<> {
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        async move {
            store
                .commit(&scope, Some(&id), Precondition::None, mutation, &journals)
                .await
        }
    }

    /// Reads a row without its state.
    pub(crate) fn read(
        &self,
        id: SnapshotId,
    ) -> impl Future<Output = Result<Option<Snapshot>>> + Send + use<> {
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        async move { store.get(&scope, &id, Detail::Metadata).await }
    }

    pub(crate) fn watch(&self, id: &SnapshotId) -> Option<StatusStream> {
        self.store.watch(&self.scope, id)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
