//! The cursor of an invocation: which snapshot the next one follows, under which precondition and under which
//! turn lock, and how it is written.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use everturn_ai::UsageTotal;
use everturn_core::{Error, Result};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use crate::invocation::turn_lock::{
    AwaitedLock, LockAnswer, QueuedTurn, Seen, SessionLocks, StoreLock, TurnLock, TurnLockGuard,
};
use crate::invocation::usage_tracker::UsedBefore;
use crate::journal::{JournalLocation, TurnKey, journal_key, turn_key};
use crate::policy::FailedTurns;
use crate::storage::snapshot::{Lease, OpenTurn, Rewind, Transition};
use crate::storage::stored_session::{StoredSession, TenantStore};
use crate::store::{Detail, JournalGuard, JournalKey, LockPlace, LockRequest, Precondition, drop_journals};
use crate::{
    AgentInput, Clock, Concurrency, SessionId, Snapshot, SnapshotEvent, SnapshotId, SnapshotIds,
    SnapshotStatus, Timeline,
};

/// The position of an invocation among the snapshots of its session.
pub(crate) struct InvocationCursor {
    session: StoredSession,
    rules: Rules,
    lock: Lock,
    /// The snapshot that the next one follows.
    last: Option<Predecessor>,
    /// Successors of `last` that do not count: a run that the invocation passed over, or the invocation's
    /// own.
    beside: Vec<SnapshotId>,
    /// The session's latest snapshot as known to this invocation.
    tip: Option<Predecessor>,
    /// Whether the snapshot that the next one follows has no successor; if it has, the next one begins a
    /// branch. On a linear timeline, whether it is the tip.
    at_tip: bool,
    /// On a linear timeline, the rewind that the next snapshot carries out.
    rewind: Option<Box<RewindDue>>,
    /// The background run, if the invocation takes one over.
    taken_over: Option<Box<TakenOver>>,
}

/// The settings of the agent that apply to the snapshots of a session.
struct Rules {
    clock: Clock,
    concurrency: Concurrency,
    timeline: Timeline,
    ids: SnapshotIds,
    failed_turns: FailedTurns,
    /// The lease of locks in the store; `None` if turns are locked in this process only.
    turn_lease: Option<Duration>,
}

/// The turn lock of the invocation's next turn.
struct Lock {
    session: Arc<SessionLocks>,
    /// The lock in this process; `None` if the turn needs none.
    next: Option<Arc<TurnLock>>,
    held: Option<TurnLockGuard>,
    /// The lock in the store that a turn requests.
    requested: Option<StoreLock>,
    in_store: Option<Box<HeldInStore>>,
    /// The snapshot and the number of commits that the invocation has seen under the lock.
    seen: Seen,
}

/// A background run that the invocation continues.
struct TakenOver {
    /// The open turn of another worker, which this invocation replays first.
    turn: Option<OpenTurn>,
    lease: Lease,
    used: UsedBefore,
}

/// A turn lock in the store, and the work that renews its lease.
struct HeldInStore {
    lock: StoreLock,
    renewal: BoxFuture<'static, Infallible>,
}

/// Where a turn begins.
struct TurnPlace {
    /// The snapshot that it continues.
    base: Option<SnapshotId>,
    /// The length of the conversation.
    length: usize,
    /// Distinguishes it from turns that run side by side with it.
    own: Option<SnapshotId>,
}

/// The facts about a snapshot that its successor needs.
#[derive(Debug, Clone, PartialEq)]
struct Predecessor {
    id: SnapshotId,
    created_at: Timestamp,
    index: Option<u64>,
    turn_index: Option<u64>,
    event: Option<SnapshotEvent>,
    is_completed: bool,
    /// The snapshot itself or, if it is a head, the snapshot before it.
    listed: Option<SnapshotId>,
    /// The usage of the conversation.
    usage: Option<UsageTotal>,
    /// The first snapshot of the branch that it is counted with, unless that is the session's first branch.
    counted_with: Option<SnapshotId>,
    /// The turn that the snapshot was taken in the middle of.
    turn: Option<OpenTurn>,
    /// The marks of the last calls of its branch.
    calls: Option<Box<str>>,
}

impl Predecessor {
    fn position(&self) -> (Timestamp, &SnapshotId) {
        (self.created_at, &self.id)
    }

    /// Reads the facts from a snapshot.
    ///
    /// # Errors
    /// `DATA_LOSS` if the snapshot's open turn cannot be read.
    fn of(snapshot: &Snapshot) -> Result<Self> {
        Ok(Self {
            id: snapshot.snapshot_id.clone(),
            created_at: snapshot.created_at,
            index: snapshot.index,
            turn_index: snapshot.turn_index,
            event: snapshot.event,
            is_completed: snapshot.status == SnapshotStatus::Completed,
            listed: snapshot.listed().cloned(),
            usage: snapshot.usage(),
            counted_with: snapshot.counted_with().cloned(),
            turn: snapshot.open_turn()?.cloned(),
            calls: snapshot.calls().map(Box::from),
        })
    }
}

impl InvocationCursor {
    pub(crate) fn new(session: StoredSession, concurrency: Concurrency, clock: Clock) -> Self {
        // Entered before anything of the session is read, so that no later commit is missed.
        let locks = SessionLocks::of(&session);
        let seen = Seen {
            snapshot: None,
            commits: locks.commits(),
        };
        Self {
            session,
            rules: Rules {
                clock,
                concurrency,
                timeline: Timeline::default(),
                ids: SnapshotIds::default(),
                failed_turns: FailedTurns::default(),
                turn_lease: None,
            },
            lock: Lock {
                session: locks,
                next: None,
                held: None,
                requested: None,
                in_store: None,
                seen,
            },
            last: None,
            beside: Vec::new(),
            tip: None,
            at_tip: true,
            rewind: None,
            taken_over: None,
        }
    }

    /// Sets what resuming an earlier snapshot does to later ones, and how snapshots are named.
    pub(crate) fn with_rules(
        mut self,
        timeline: Timeline,
        ids: SnapshotIds,
        failed_turns: FailedTurns,
    ) -> Self {
        self.rules.timeline = timeline;
        self.rules.ids = ids;
        self.rules.failed_turns = failed_turns;
        self
    }

    /// Locks turns in the store too, with leases of this length.
    pub(crate) fn with_store_locks(mut self, lease: Option<Duration>) -> Self {
        self.rules.turn_lease = lease;
        self
    }

    /// Continues from exactly this snapshot, where `latest` is the session's latest. If another snapshot
    /// follows it, this begins a branch; on a linear timeline, resuming a snapshot before the latest is a
    /// rewind.
    ///
    /// # Errors
    /// `DATA_LOSS` if the snapshot's bookkeeping cannot be read.
    pub(crate) fn resume_from(
        &mut self,
        snapshot: &Snapshot,
        latest: Option<&Snapshot>,
        is_followed: bool,
    ) -> Result<()> {
        self.tip = latest.map(Predecessor::of).transpose()?;
        self.follow(Predecessor::of(snapshot)?, is_followed);
        Ok(())
    }

    /// Makes the next snapshot follow this one.
    fn follow(&mut self, snapshot: Predecessor, is_followed: bool) {
        let is_linear = self.rules.timeline == Timeline::Linear;
        let is_latest = Some(&snapshot.id) == self.tip_id();
        self.at_tip = if is_linear { is_latest } else { !is_followed };
        self.rewind = (is_linear && !is_latest).then(|| Box::new(RewindDue::To(snapshot.id.clone())));
        self.lock.seen.snapshot = if is_linear {
            self.tip_id().cloned()
        } else {
            Some(snapshot.id.clone())
        };
        self.beside.clear();
        self.last = Some(snapshot);
        self.watch_lock();
    }

    /// Continues after the session's latest snapshot. `good` is that snapshot, or the older one from which
    /// the session continues if the latest cannot be resumed; then `beside` lists the older one's successors.
    ///
    /// # Errors
    /// As [`InvocationCursor::resume_from`].
    pub(crate) fn resume_latest(
        &mut self,
        good: Option<&Snapshot>,
        latest: Option<&Snapshot>,
        beside: Vec<SnapshotId>,
    ) -> Result<()> {
        self.last = good.map(Predecessor::of).transpose()?;
        self.tip = latest.map(Predecessor::of).transpose()?;
        self.lock.seen.snapshot = self.tip_id().cloned();
        self.beside = beside;
        self.at_tip = true;
        self.watch_lock();
        Ok(())
    }

    /// Gets a handle on the lock of the next turn, so that a faster turn is noticed.
    pub(crate) fn watch_lock(&mut self) {
        let place = match self.rules.timeline {
            Timeline::Linear => LockPlace::Session,
            Timeline::Branching => LockPlace::Branch(self.lock.seen.snapshot.clone()),
        };
        self.lock.next = self
            .is_exclusive()
            .then(|| Arc::new(self.lock.session.lock(place)));
    }

    /// Continues the background run of the snapshot `run`, whose parent is `parent`, beginning with the turn
    /// that was in progress. Takes the turn lock if it is free.
    ///
    /// # Errors
    /// As [`InvocationCursor::resume_from`].
    pub(crate) fn take_over(
        &mut self,
        run: &Snapshot,
        parent: Option<&Snapshot>,
        turn: Option<OpenTurn>,
    ) -> Result<()> {
        self.last = parent.map(Predecessor::of).transpose()?;
        if let Some(last) = &mut self.last {
            last.counted_with = run.counted_with().cloned();
        }
        let session = run.usage().unwrap_or_default();
        let note = run.background_run()?;
        let before_run = note.and_then(|run| run.used_before);
        self.taken_over = Some(Box::new(TakenOver {
            turn,
            // Already this worker's: the takeover has written it.
            lease: run.lease()?.unwrap_or_else(Lease::first),
            used: UsedBefore {
                session,
                invocation: session - before_run.unwrap_or_default(),
                turn: note.and_then(|run| run.used_in_turn).unwrap_or_default(),
                is_takeover: true,
            },
        }));
        self.tip = Some(Predecessor::of(run)?);
        self.lock.seen.snapshot = Some(run.snapshot_id.clone());
        self.beside = vec![run.snapshot_id.clone()];
        self.watch_lock();
        // The run writes only its own, existing snapshot, so nothing depends on the turn lock.
        let _ = self.take_lock(&run.snapshot_id);
        Ok(())
    }

    /// Returns the store as the tenant sees it whose session this is.
    pub(crate) fn tenant(&self) -> &TenantStore {
        self.session.tenant()
    }

    /// Returns the last snapshot that this invocation committed or resumed from.
    pub(crate) fn last(&self) -> Option<&SnapshotId> {
        self.last.as_ref().map(|last| &last.id)
    }

    /// Returns the marks of the last calls that the branch has answered.
    pub(crate) fn calls(&self) -> Option<&str> {
        self.last.as_ref()?.calls.as_deref()
    }

    /// Returns a snapshot of the session whose turn, or one before it, answered a call: the last one, or the
    /// session's latest.
    pub(crate) fn answering(&self, mark: &str) -> Option<(TenantStore, SnapshotId)> {
        let known = [&self.last, &self.tip].into_iter().flatten();
        let mut marked = known.filter(|snapshot| {
            let calls = snapshot.calls.as_deref().unwrap_or_default();
            calls.split(' ').any(|call| call == mark)
        });
        let id = marked.next()?.id.clone();
        Some((self.session.tenant().clone(), id))
    }

    /// Returns the first snapshot of the branch that the next snapshot, `own`, is counted with; `None` for
    /// the session's first branch.
    pub(crate) fn counted_with(&self, own: &SnapshotId) -> Option<SnapshotId> {
        if self.at_tip {
            self.last.as_ref()?.counted_with.clone()
        } else {
            Some(own.clone())
        }
    }

    /// Returns what was used before the invocation.
    pub(crate) fn used_before(&self) -> UsedBefore {
        match &self.taken_over {
            Some(run) => run.used,
            None => UsedBefore {
                session: self.last.as_ref().and_then(|last| last.usage).unwrap_or_default(),
                ..UsedBefore::default()
            },
        }
    }

    /// Returns the session's latest snapshot as known to this invocation.
    pub(crate) fn tip_id(&self) -> Option<&SnapshotId> {
        self.tip.as_ref().map(|tip| &tip.id)
    }

    /// Returns whether no other turn may follow the snapshot that the next one follows. A rewind must be
    /// alone in its session: otherwise it could supersede a snapshot that it never saw.
    fn is_exclusive(&self) -> bool {
        (self.at_tip || self.rules.timeline == Timeline::Linear)
            && self.rules.concurrency != Concurrency::Fork
    }

    /// Asks for the turn lock, for a turn or a background run of that id.
    ///
    /// # Errors
    /// `ABORTED` if the policy is to reject and another turn holds the lock or was faster.
    pub(crate) fn take_lock(&mut self, turn: &SnapshotId) -> Result<LockAnswer> {
        let Some(lock) = self.lock.next.clone() else {
            return Ok(LockAnswer::Granted);
        };
        // A commit releases the lock in the store: a run that follows its turn has to request it again.
        let in_store = self.store_lock(turn).filter(|_| self.lock.in_store.is_none());
        if self.lock.held.is_some() && in_store.is_none() {
            return Ok(LockAnswer::Granted);
        }
        let guard = match self.lock.held.take() {
            Some(guard) => Ok(guard),
            None => lock.try_take_at(turn, &self.lock.seen),
        };
        let guard = match guard {
            Ok(guard) if in_store.is_none() => {
                self.lock.held = Some(guard);
                return Ok(LockAnswer::Granted);
            }
            Ok(guard) => Some(guard),
            Err(_) if self.rules.concurrency == Concurrency::Queue => None,
            Err(error) => return Err(error),
        };
        self.lock.requested.clone_from(&in_store);
        Ok(LockAnswer::Queued(Box::new(QueuedTurn {
            session: self.session.clone(),
            lock,
            guard,
            in_store,
            turn: turn.clone(),
            seen: self.lock.seen.clone(),
            failed_turns: self.rules.failed_turns,
        })))
    }

    /// Creates the lock in the store for a turn, if turns are locked there.
    fn store_lock(&self, turn: &SnapshotId) -> Option<StoreLock> {
        let lease = self.rules.turn_lease?;
        let condition = self.on_snapshots();
        condition.lock_place()?;
        let request = LockRequest::new(self.session_id().clone(), turn.clone(), condition, lease);
        let request = match self.rules.concurrency {
            Concurrency::Queue => request.waiting(),
            _ => request,
        };
        Some(StoreLock::new(self.session.clone(), request))
    }

    /// Keeps the turn lock after waiting for it; returns the snapshot to continue from if the session moved
    /// on.
    ///
    /// # Errors
    /// As [`InvocationCursor::resume_from`].
    pub(crate) fn keep_lock(&mut self, awaited: AwaitedLock) -> Result<Option<Snapshot>> {
        self.lock.held = Some(awaited.guard);
        self.lock.requested = None;
        self.lock.in_store = awaited.in_store.map(|lock| {
            let renewal = lock.renewed();
            Box::new(HeldInStore { lock, renewal })
        });
        self.lock.seen.commits = awaited.commits;
        let Some(snapshot) = awaited.moved_to else {
            return Ok(None);
        };
        let moved_to = Predecessor::of(&snapshot)?;
        self.lock.seen.snapshot = Some(moved_to.id.clone());
        let is_newer = |tip: &Predecessor| tip.position() < moved_to.position();
        if self.rules.timeline == Timeline::Linear || self.tip.as_ref().is_none_or(is_newer) {
            self.tip = Some(moved_to.clone());
        }
        // A rewind returns to the requested snapshot, whatever came after it.
        if self.rewind.is_some() {
            return Ok(None);
        }
        self.beside.clear();
        self.last = Some(moved_to);
        Ok(Some(snapshot))
    }

    /// Returns the number of the next turn among its ancestors. A turn with snapshots from its middle only
    /// did not end and does not count.
    pub(crate) fn next_turn(&self) -> u64 {
        let number = |last: &Predecessor| match last.event {
            Some(SnapshotEvent::RoundEnd) => last.turn_index,
            _ if !last.is_completed => last.turn_index,
            _ => last.turn_index.map(|turn| turn + 1),
        };
        self.last.as_ref().and_then(number).unwrap_or_default()
    }

    /// Releases the turn lock, or stops waiting for it. Returns the work that does so in the store, if it is
    /// needed.
    pub(crate) fn release_lock(&mut self) -> Option<BoxFuture<'static, ()>> {
        self.lock.held = None;
        let held = self.lock.in_store.take().map(|held| held.lock);
        held.or(self.lock.requested.take()).map(StoreLock::release)
    }

    /// Forgets a lock in the store that another turn has.
    pub(crate) fn was_refused(&mut self) {
        self.lock.requested = None;
    }

    /// Renews the lease of the lock in the store, for as long as it is polled.
    pub(crate) async fn renew_lock(&mut self) -> Infallible {
        match &mut self.lock.in_store {
            Some(held) => (&mut held.renewal).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the condition under which the next snapshot is written.
    pub(crate) fn precondition(&self) -> Precondition {
        self.condition(false)
    }

    /// Returns the condition under which the next snapshot is written, which releases the lock in the store
    /// or keeps it.
    fn condition(&self, releases: bool) -> Precondition {
        let condition = self.on_snapshots();
        match &self.lock.in_store {
            Some(held) if condition.lock_place().is_some() => Precondition::Held {
                turn: held.lock.turn().clone(),
                releases,
                and: Box::new(condition),
            },
            _ => condition,
        }
    }

    /// Returns the condition on the session's snapshots under which the next one is written.
    fn on_snapshots(&self) -> Precondition {
        match self.rules.timeline {
            _ if !self.is_exclusive() => Precondition::None,
            Timeline::Linear => Precondition::Tip(self.tip_id().cloned()),
            Timeline::Branching => Precondition::Unfollowed {
                snapshot: self.last().cloned(),
                beside: self.beside.clone(),
            },
        }
    }

    /// Creates a snapshot after the last one. It sorts after both its parent and the tip known to this
    /// invocation, regardless of the clocks of other processes. So on one branch the latest snapshot is the
    /// one committed last; among branches that grow at the same time the clocks decide.
    /// A head is not counted.
    pub(crate) fn next_snapshot(&self, id: SnapshotId) -> Snapshot {
        let after = |earlier: &Predecessor| earlier.created_at.saturating_add(SignedDuration::from_micros(1));
        let floor = [&self.last, &self.tip]
            .into_iter()
            .flatten()
            .filter_map(|earlier| after(earlier).ok())
            .max();
        let now = self.rules.clock.now();
        let created_at = floor.map_or(now, |floor| floor.max(now));
        let next = |number: Option<u64>| number.map_or(0, |number| number + 1);
        let mut snapshot = Snapshot {
            parent_id: self.last().cloned(),
            updated_at: Some(created_at),
            // Numbers follow the tip, not the parent, so that they grow across branches too.
            index: Some(next(self.tip.as_ref().and_then(|tip| tip.index))),
            turn_index: Some(self.next_turn()),
            event: Some(SnapshotEvent::TurnEnd),
            ..Snapshot::new(id, self.session_id().clone(), created_at)
        };
        snapshot.set_listing(false, self.listed().cloned());
        snapshot
    }

    /// Returns whether the next snapshot follows a head that is no snapshot.
    pub(crate) fn is_at_head(&self) -> bool {
        self.last() != self.listed()
    }

    /// Returns the last snapshot, past the heads after it.
    pub(crate) fn listed(&self) -> Option<&SnapshotId> {
        self.last.as_ref()?.listed.as_ref()
    }

    fn session_id(&self) -> &SessionId {
        self.session.id()
    }

    /// Locates the journal of a turn that begins in a conversation of that length; `None` if the store keeps
    /// none.
    pub(crate) fn journal(
        &self,
        length: usize,
        input: &AgentInput,
        reserved: &SnapshotId,
        call: Option<&str>,
    ) -> Option<JournalLocation> {
        self.session.tenant().store().journal()?;
        let session = self.session_id().clone();
        let turn = self.turn_name(length, input, reserved, call);
        let TurnPlace { base, length, own } = self.turn_place(length, reserved, call);
        // An input other than the open turn's finds the remains of that turn there.
        let left = self.last.as_ref().and_then(|last| last.turn.as_ref());
        let open = self.open_turn(input, call).or(left.filter(|_| own.is_none()));
        let journal = open.map(|turn| turn.journal.clone());
        let key: Box<dyn FnOnce() -> JournalKey + Send> = Box::new(move || match journal {
            Some(journal) => JournalKey::new(session, journal),
            None => journal_key(&session, base.as_ref(), length, own.as_ref()),
        });
        let lease = self
            .taken_over
            .as_ref()
            .map_or_else(Lease::first, |run| run.lease);
        Some(JournalLocation {
            session: self.session.clone(),
            key: TurnKey::new(LazyLock::new(key)),
            turn,
            past: open.map_or(0, |turn| turn.records),
            guard: JournalGuard::new(reserved.clone(), lease, self.precondition()),
        })
    }

    /// Returns the name of a turn that begins in a conversation of that length, equal for every attempt at
    /// the turn.
    pub(crate) fn turn_name(
        &self,
        length: usize,
        input: &AgentInput,
        reserved: &SnapshotId,
        call: Option<&str>,
    ) -> TurnKey {
        let session = self.session_id().clone();
        let key: Box<dyn FnOnce() -> JournalKey + Send> = if let Some(turn) = self.open_turn(input, call) {
            let name = turn.turn.clone().unwrap_or_else(|| turn.journal.clone());
            Box::new(move || JournalKey::new(session, name))
        } else {
            let (place, input) = (self.turn_place(length, reserved, call), input.clone());
            Box::new(move || {
                turn_key(
                    &session,
                    place.base.as_ref(),
                    place.length,
                    &input,
                    place.own.as_ref(),
                )
            })
        };
        TurnKey::new(LazyLock::new(key))
    }

    /// Returns where a turn begins, equal for every attempt at the turn. `call` is the mark of the call that
    /// the turn answers.
    ///
    /// Identical turns run side by side only if the agent forks. The call then distinguishes them, and a
    /// repetition of the call finds the turn wherever the session has moved to; without a call, the reserved
    /// id distinguishes them.
    fn turn_place(&self, length: usize, reserved: &SnapshotId, call: Option<&str>) -> TurnPlace {
        let forks = self.rules.concurrency == Concurrency::Fork;
        match call.filter(|_| forks) {
            Some(call) => TurnPlace {
                base: None,
                length: 0,
                own: Some(call.into()),
            },
            None => TurnPlace {
                base: self.last().cloned(),
                length,
                own: forks.then(|| reserved.clone()),
            },
        }
    }

    /// Returns the open turn that this input continues: the turn of another worker, or the one whose middle
    /// was resumed without a message. If identical turns may run side by side, the latter could still be
    /// running, so only a repetition of its call continues it.
    fn open_turn(&self, input: &AgentInput, call: Option<&str>) -> Option<&OpenTurn> {
        let is_repeated = |turn: &OpenTurn| {
            let own = call.map(SnapshotId::from);
            own.is_some() && journal_key(self.session_id(), None, 0, own.as_ref()).turn() == turn.journal
        };
        let resumed = || {
            let left = self
                .last
                .as_ref()?
                .turn
                .as_ref()
                .filter(|_| !input.has_payload())?;
            (self.rules.concurrency != Concurrency::Fork || is_repeated(left)).then_some(left)
        };
        let taken_up = self.taken_over.as_ref().and_then(|run| run.turn.as_ref());
        taken_up.or_else(resumed)
    }

    /// Notes that the turn has ended. The next one is another turn, unless this one failed in its middle and
    /// may continue there.
    pub(crate) fn turn_ended(&mut self, stands: bool) {
        if let Some(run) = &mut self.taken_over {
            run.turn = None;
        }
        if let Some(last) = self.last.as_mut().filter(|_| stands) {
            last.turn = None;
        }
    }

    /// Writes a new snapshot, which holds the turns of these journals. Pass the outcome to
    /// [`InvocationCursor::wrote`].
    pub(crate) fn create(
        &self,
        snapshot: Snapshot,
        journals: Vec<JournalKey>,
    ) -> impl Future<Output = Result<Saved>> + Send + use<> {
        // On a linear timeline every snapshot must become the tip, even one that existed before.
        let only_tip = self.tip_id().filter(|_| self.rules.timeline == Timeline::Linear);
        let new = NewSnapshot {
            rewind: self.rewind.as_deref().cloned(),
            named_by_content: self.rules.ids == SnapshotIds::ContentAddressed
                && snapshot.snapshot_id.is_content_addressed(),
            only_tip: only_tip.cloned(),
            journals,
            ..self.new_snapshot(self.condition(releases_lock(&snapshot)), snapshot)
        };
        new.write()
    }

    /// Returns a snapshot to write that belongs to no rewind.
    fn new_snapshot(&self, precondition: Precondition, snapshot: Snapshot) -> NewSnapshot {
        NewSnapshot {
            session: self.session.clone(),
            precondition,
            rewind: None,
            named_by_content: false,
            as_of: self.lock.session.commits(),
            only_tip: None,
            snapshot,
            journals: Vec::new(),
        }
    }

    /// Moves to a saved snapshot, which the next one follows. It has no successor, unless it existed before
    /// and the session may branch.
    pub(crate) fn wrote(&mut self, saved: &Saved) {
        if !saved.is_new {
            // Nothing was written that could have moved the lock in the store, so it is the lock of another
            // place now.
            self.lock.requested = self.lock.in_store.take().map(|held| held.lock);
        } else if releases_lock(&saved.snapshot) {
            self.lock.in_store = None;
        }
        if !saved.is_tip {
            self.lock.seen.commits = saved.as_of;
            return self.follow(saved.predecessor.clone(), saved.is_followed);
        }
        let id = &saved.snapshot.snapshot_id;
        let unfinished = saved.unfinished.clone();
        self.rewind = unfinished.map(|rewind| Box::new(RewindDue::Unfinished(rewind)));
        self.tip = Some(saved.predecessor.clone());
        if let Some(lock) = &self.lock.next {
            self.lock.seen = lock.committed(id);
        }
        // A pending snapshot is the tip, but the turns of its run still continue from its parent.
        if saved.snapshot.status == SnapshotStatus::Pending {
            return self.beside.push(id.clone());
        }
        self.last.clone_from(&self.tip);
        self.beside.clear();
        self.at_tip = true;
        if self.lock.next.is_none() {
            self.begin_branch(saved);
        }
    }

    /// Notes that the invocation has begun a branch, which others may continue from now on. If the snapshot
    /// is from the middle of a turn, the turn holds the branch's lock.
    fn begin_branch(&mut self, saved: &Saved) {
        let id = &saved.snapshot.snapshot_id;
        self.lock.seen.snapshot = Some(id.clone());
        self.watch_lock();
        if let Some(lock) = &self.lock.next {
            self.lock.seen = lock.committed(id);
        }
        if saved.snapshot.event == Some(SnapshotEvent::RoundEnd) {
            self.lock.held = self.lock.next.as_ref().and_then(|lock| lock.try_take(id).ok());
        }
    }

    /// Writes the snapshot of a turn that failed. It carries out no rewind: next to the snapshots that a
    /// rewind would have replaced, it is superseded until it is resumed. Pass the outcome to
    /// [`InvocationCursor::wrote`] unless it is superseded.
    pub(crate) fn keep(&self, snapshot: Snapshot) -> impl Future<Output = Result<Saved>> + Send + use<> {
        let orphaned = self.rewind.is_some();
        let precondition = if orphaned {
            Precondition::None
        } else {
            self.condition(true)
        };
        self.new_snapshot(precondition, Snapshot { orphaned, ..snapshot })
            .write()
    }

    /// Changes a snapshot, which then holds the turns of these journals. Returns whether anything was
    /// written, and the snapshot as it is stored if not.
    pub(crate) fn change(
        &self,
        id: SnapshotId,
        transition: Transition,
        journals: Vec<JournalKey>,
    ) -> impl Future<Output = Result<(bool, Option<Snapshot>)>> + Send + use<> {
        let tenant = self.tenant().clone();
        async move {
            let written = tenant.commit(&id, Precondition::None, transition, &journals);
            if written.await?.is_some() {
                return Ok((true, None));
            }
            Ok((false, tenant.get(&id, Detail::Metadata).await?))
        }
    }
}

/// Returns whether writing a snapshot ends the need for its turn's lock in the store. A snapshot in the
/// middle of a turn does not. A pending snapshot does, because its run has a separate lease.
fn releases_lock(snapshot: &Snapshot) -> bool {
    snapshot.event != Some(SnapshotEvent::RoundEnd)
}

/// A snapshot to write, and everything that goes with it.
struct NewSnapshot {
    session: StoredSession,
    precondition: Precondition,
    /// The rewind that it carries out.
    rewind: Option<RewindDue>,
    /// Whether its id is the hash of its state, so that a stored snapshot with this id is the same one.
    named_by_content: bool,
    /// The number of commits to the session when it is written.
    as_of: u64,
    /// The session's tip, if the session may not branch.
    only_tip: Option<SnapshotId>,
    snapshot: Snapshot,
    /// The journals of the turns it holds.
    journals: Vec<JournalKey>,
}

/// A snapshot that is in the store.
pub(crate) struct Saved {
    pub(crate) snapshot: Snapshot,
    predecessor: Predecessor,
    /// Whether it was written now. A content-addressed snapshot may have existed before.
    pub(crate) is_new: bool,
    /// The rewind that came with it, if that could not be finished.
    unfinished: Option<Rewind>,
    /// Whether the next snapshot follows it for certain: it is new, or the session's only tip.
    is_tip: bool,
    /// Whether another snapshot follows it, or it is superseded: then the next one begins a branch.
    is_followed: bool,
    /// The number of commits to the session before this was read.
    as_of: u64,
}

/// A rewind that the next snapshot carries out.
#[derive(Clone)]
enum RewindDue {
    /// A rewind to this snapshot; nothing of it is written yet.
    To(SnapshotId),
    /// A decided rewind of which not every superseded snapshot is marked.
    Unfinished(Rewind),
}

impl NewSnapshot {
    async fn write(mut self) -> Result<Saved> {
        let id = self.snapshot.snapshot_id.clone();
        // Few turns rewind. Their futures are boxed, so that the others do not carry the size.
        let rewind = match self.rewind.take() {
            Some(RewindDue::To(to)) => Some(Box::pin(self.session.rewind_to(&to)).await?.extended_to(&id)),
            Some(RewindDue::Unfinished(rewind)) => Some(rewind.extended_to(&id)),
            None => None,
        };
        let mut written = self.snapshot.clone();
        if let Some(rewind) = &rewind {
            written.set_unfinished_rewind(rewind.clone());
        }
        let create = Transition::Create {
            snapshot: Box::new(written),
            named_by_content: self.named_by_content,
        };
        let (store, scope) = (self.session.tenant().store(), self.session.tenant().scope());
        let saved = store.commit(
            scope,
            Some(&id),
            self.precondition.clone(),
            create.into(),
            &self.journals,
        );
        if saved.await?.is_none() {
            return Box::pin(self.continue_from_existing()).await;
        }
        let unfinished = match rewind {
            Some(rewind) => {
                let finished = Box::pin(self.session.finish_rewind(&rewind, &self.snapshot)).await;
                Some(rewind).filter(|_| !is_finished(&finished, &id))
            }
            None => None,
        };
        Ok(Saved {
            predecessor: Predecessor::of(&self.snapshot)?,
            snapshot: self.snapshot,
            is_new: true,
            unfinished,
            is_tip: true,
            is_followed: false,
            as_of: self.as_of,
        })
    }

    /// Continues from the existing snapshot instead of writing a duplicate.
    async fn continue_from_existing(self) -> Result<Saved> {
        let tenant = self.session.tenant();
        let id = self.snapshot.snapshot_id;
        let found = tenant.get(&id, Detail::Metadata).await?;
        let found = found.ok_or_else(|| {
            Error::aborted(format!(
                "snapshot '{id}' was deleted while this turn was saved: retry the turn"
            ))
        })?;
        // On a linear timeline the existing snapshot has to become the tip, even if it was superseded.
        if let Some(tip) = self.only_tip.as_ref().filter(|tip| **tip != id) {
            self.session.move_tip_to(&found, tip).await?;
        }
        let is_followed = self.only_tip.is_none() && self.session.is_followed(&found).await?;
        if let Some(journal) = tenant.store().journal() {
            drop_journals(journal, tenant.scope(), &self.journals).await;
        }
        Ok(Saved {
            predecessor: Predecessor::of(&found)?,
            snapshot: Snapshot {
                // Equal to the stored state, and shared with the session instead of read again.
                state: self.snapshot.state,
                ..found
            },
            is_new: false,
            unfinished: None,
            is_tip: self.only_tip.is_some(),
            is_followed,
            as_of: self.as_of,
        })
    }
}

/// Returns whether a rewind is finished. An unfinished rewind is not a failure of the turn, which is durable:
/// the snapshot records that marks are missing, and the next snapshot continues with them.
fn is_finished(outcome: &Result<()>, tip: &SnapshotId) -> bool {
    if let Err(error) = outcome {
        tracing::warn!(%tip, %error, "a rewind could not mark every orphaned snapshot; the next turn or listing continues it");
    }
    outcome.is_ok()
}
