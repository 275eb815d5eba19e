//! Where the rows of one invocation go: after which row, under which claim, with which precondition.

use std::sync::{Arc, Mutex, PoisonError};

use everturn_core::Result;
use jiff::{SignedDuration, Timestamp};

use crate::claim::{Claim, Interest};
use crate::journal::{Place, turn_key, turn_over};
use crate::store::{
    Detail, JournalGuard, JournalKey, Mutation, Precondition, Scope, SessionStore, StatusStream, tip_moved,
};
use crate::{AgentInput, Clock, Concurrency, SessionId, Snapshot, SnapshotEvent, SnapshotId, SnapshotStatus};

/// An invocation's place among the rows of its session.
pub(crate) struct Ledger {
    store: Arc<dyn SessionStore>,
    scope: Scope,
    session_id: SessionId,
    clock: Clock,
    policy: Concurrency,
    interest: Arc<Interest>,
    claim: Option<Claim>,
    /// The row the next one goes on from.
    last: Option<Mark>,
    /// The session's latest row as far as this invocation knows.
    tip: Option<Mark>,
    /// Whether the next row goes to the tip; if not, it begins a branch.
    at_tip: bool,
    /// The tip, for whoever must know it while a turn runs.
    place: Arc<Tip>,
}

/// The id of the session's latest row as an invocation knows it.
#[derive(Default)]
struct Tip(Mutex<Option<SnapshotId>>);

impl Tip {
    fn set(&self, tip: Option<&Mark>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tip.map(|mark| mark.id.clone());
    }

    fn check(&self, session: &SessionId, latest: Option<&SnapshotId>) -> Result<()> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() == latest {
            return Ok(());
        }
        Err(tip_moved(session, known.as_ref(), latest))
    }
}

/// What a row's successor must know of it.
#[derive(Debug, Clone, PartialEq)]
struct Mark {
    id: SnapshotId,
    created_at: Timestamp,
    index: Option<u64>,
    turn_index: Option<u64>,
}

impl From<&Snapshot> for Mark {
    fn from(row: &Snapshot) -> Self {
        Self {
            id: row.snapshot_id.clone(),
            created_at: row.created_at,
            index: row.index,
            turn_index: row.turn_index,
        }
    }
}

/// What a turn needs before it may start.
pub(crate) enum Admission {
    /// Nothing more.
    Granted,
    /// Its turn in the queue; give what it yields to [`Ledger::admit`].
    Queued(QueuedTurn),
}

/// A turn that waits for the session.
pub(crate) struct QueuedTurn {
    store: Arc<dyn SessionStore>,
    scope: Scope,
    session_id: SessionId,
    interest: Arc<Interest>,
    turn: SnapshotId,
    known_tip: Option<SnapshotId>,
}

/// A turn that waited, with the row it must go on from if the session moved on meanwhile.
pub(crate) struct Admitted {
    claim: Claim,
    moved_to: Option<Snapshot>,
}

impl Ledger {
    pub(crate) fn new(
        store: Arc<dyn SessionStore>,
        scope: Scope,
        session_id: SessionId,
        policy: Concurrency,
        clock: Clock,
    ) -> Self {
        let interest = Arc::new(Interest::in_session(&store, &scope, &session_id));
        Self {
            store,
            scope,
            session_id,
            clock,
            policy,
            interest,
            claim: None,
            last: None,
            tip: None,
            at_tip: true,
            place: Arc::default(),
        }
    }

    /// Goes on from exactly this row, where `latest` is the session's latest: below it, that begins a branch.
    pub(crate) fn resume_from(&mut self, row: &Snapshot, latest: Option<&Snapshot>) {
        self.last = Some(Mark::from(row));
        self.move_tip(latest.map(Mark::from));
        self.at_tip = self.last == self.tip;
    }

    /// Goes on where the session is: after its latest row. `good` is that row, or an older one that stands in for it
    /// because nobody can go on from it.
    pub(crate) fn resume_latest(&mut self, good: Option<&Snapshot>, latest: Option<&Snapshot>) {
        self.last = good.map(Mark::from);
        self.move_tip(latest.map(Mark::from));
        self.at_tip = true;
    }

    fn move_tip(&mut self, tip: Option<Mark>) {
        self.place.set(tip.as_ref());
        self.tip = tip;
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

    /// Whether the next row must land at the tip.
    fn is_exclusive(&self) -> bool {
        self.at_tip && self.policy != Concurrency::Fork
    }

    /// Asks for the session, for a turn or a background run of that id.
    ///
    /// # Errors
    /// `ABORTED` if the policy is to reject and another turn holds the session or has moved its tip.
    pub(crate) fn request(&mut self, turn: &SnapshotId) -> Result<Admission> {
        if !self.is_exclusive() || self.claim.is_some() {
            return Ok(Admission::Granted);
        }
        let claim = self
            .interest
            .claim_now(turn)
            .and_then(|claim| match self.interest.tip() {
                Some(tip) if Some(&tip) != self.tip_id() => {
                    Err(tip_moved(&self.session_id, self.tip_id(), Some(&tip)))
                }
                _ => Ok(claim),
            });
        match claim {
            Ok(claim) => {
                self.claim = Some(claim);
                Ok(Admission::Granted)
            }
            Err(_) if self.policy == Concurrency::Queue => Ok(Admission::Queued(QueuedTurn {
                store: Arc::clone(&self.store),
                scope: self.scope.clone(),
                session_id: self.session_id.clone(),
                interest: Arc::clone(&self.interest),
                turn: turn.clone(),
                known_tip: self.tip_id().cloned(),
            })),
            Err(error) => Err(error),
        }
    }

    /// Takes the session after waiting for it; returns the row to go on from if the session moved on.
    pub(crate) fn admit(&mut self, admitted: Admitted) -> Option<Snapshot> {
        self.claim = Some(admitted.claim);
        if let Some(row) = &admitted.moved_to {
            self.last = Some(Mark::from(row));
            self.move_tip(self.last.clone());
        }
        admitted.moved_to
    }

    /// Lets others have the session.
    pub(crate) fn release(&mut self) {
        self.claim = None;
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
            turn_index: Some(next(self.last.as_ref().and_then(|mark| mark.turn_index))),
            event: Some(SnapshotEvent::TurnEnd),
            ..Snapshot::new(id, self.session_id.clone(), created_at)
        }
    }

    /// Where the journal of a turn is kept that begins in a conversation of that length; `None` if the store keeps none.
    pub(crate) fn journal(&self, length: usize, input: &AgentInput, reserved: &SnapshotId) -> Option<Place> {
        self.store.journal()?;
        // Turns that look the same may run side by side only where the agent wants it so.
        let own = Some(reserved).filter(|_| self.policy == Concurrency::Fork);
        Some(Place {
            store: Arc::clone(&self.store),
            scope: self.scope.clone(),
            key: turn_key(&self.session_id, self.last(), length, input, own),
            guard: self.guard(reserved),
        })
    }

    /// A turn may act for as long as its row could still be written: it is not there yet and the session is where the turn
    /// began, or it is that of a background run which is not over.
    fn guard(&self, reserved: &SnapshotId) -> JournalGuard {
        let (session, place) = (self.session_id.clone(), Arc::clone(&self.place));
        let is_exclusive = self.is_exclusive();
        JournalGuard::new(reserved.clone(), move |row, latest| match row {
            Some(row) if row.status == SnapshotStatus::Pending => Ok(()),
            Some(row) => Err(turn_over(&row.snapshot_id)),
            None if is_exclusive => place.check(&session, latest),
            None => Ok(()),
        })
    }

    /// Drops the journals of turns that are over and have no row.
    pub(crate) fn forget(&self, journals: Vec<JournalKey>) -> impl Future<Output = ()> + Send + use<> {
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        async move {
            for key in journals {
                let Some(journal) = store.journal() else { return };
                if let Err(error) = journal.clear(&scope, &key).await {
                    tracing::warn!(%error, "the journal of a turn was not dropped");
                }
            }
        }
    }

    /// Writes a new row, which holds the turns of these journals. Report what it returns to [`Ledger::wrote`].
    pub(crate) fn create(
        &self,
        row: Snapshot,
        journals: Vec<JournalKey>,
    ) -> impl Future<Output = Result<Snapshot>> + Send + use<> {
        let precondition = self.precondition();
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        async move {
            let id = row.snapshot_id.clone();
            let written = row.clone();
            let mutation: Mutation = Arc::new(move |_| Ok(Some(written.clone())));
            store
                .commit(&scope, Some(&id), precondition, mutation, &journals)
                .await?;
            Ok(row)
        }
    }

    /// Takes note of a row that is now the session's latest.
    pub(crate) fn wrote(&mut self, row: &Snapshot) {
        self.interest.committed(&row.snapshot_id);
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
    pub(crate) fn status(
        &self,
        id: SnapshotId,
    ) -> impl Future<Output = Result<Option<SnapshotStatus>>> + Send + use<> {
        let (store, scope) = (Arc::clone(&self.store), self.scope.clone());
        async move {
            Ok(store
                .get(&scope, &id, Detail::Metadata)
                .await?
                .map(|row| row.status))
        }
    }

    pub(crate) fn watch(&self, id: &SnapshotId) -> Option<StatusStream> {
        self.store.watch(&self.scope, id)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl QueuedTurn {
    /// Waits for those that came before, and looks where they left the session.
    ///
    /// # Errors
    /// What the store fails with; `FAILED_PRECONDITION` if they left it where nobody can go on.
    pub(crate) async fn wait(self) -> Result<Admitted> {
        let claim = self.interest.claim_in_order(&self.turn).await;
        let moved = self
            .interest
            .tip()
            .is_some_and(|tip| Some(&tip) != self.known_tip.as_ref());
        let moved_to = if moved {
            let latest = self
                .store
                .latest(&self.scope, &self.session_id, Detail::Whole)
                .await?;
            latest.map(crate::opening::resumable).transpose()?
        } else {
            None
        };
        Ok(Admitted { claim, moved_to })
    }
}
