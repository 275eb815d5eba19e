//! The cursor of an invocation: which snapshot the next one follows, and under which precondition.

mod new_snapshot;

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use everturn_ai::UsageTotal;
use everturn_core::{Result, Status};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio_util::task::TaskTracker;

pub(crate) use self::new_snapshot::Saved;
use self::new_snapshot::{NewSnapshot, RewindDue};
use crate::invocation::turn_lock::{
    AwaitedLock, EarlyLock, LockAnswer, QueuedTurn, Seen, SessionLocks, StoreLock, TurnLock, TurnLockGuard,
};
use crate::journal::{JournalLocation, TurnKey, journal_key, turn_key};
use crate::policy::failed_turns::FailedTurns;
use crate::storage::snapshot::{Lease, OpenTurn, Transition};
use crate::storage::stored_session::{StoredSession, TenantStore};
use crate::store::{
    Detail, JournalGuard, JournalKey, LockPlace, LockRequest, Precondition, Scope, StatusStream, tip_moved,
};
use crate::{
    AgentInput, Clock, Concurrency, SessionId, SessionState, Snapshot, SnapshotEvent, SnapshotId,
    SnapshotIds, SnapshotStatus, Timeline,
};

/// The position of an invocation among the snapshots of its session. Its boxed fields are rarely set.
pub(crate) struct InvocationCursor {
    session: StoredSession,
    clock: Clock,
    policy: Concurrency,
    timeline: Timeline,
    ids: SnapshotIds,
    failed_turns: FailedTurns,
    locks: Arc<SessionLocks>,
    /// The lock that the next turn takes; `None` if it needs none.
    turn_lock: Option<Arc<TurnLock>>,
    held: Option<TurnLockGuard>,
    /// The lease of locks in the store; `None` if turns are locked in this process only.
    turn_lease: Option<Duration>,
    /// The lock in the store that a turn requests.
    asked: Option<StoreLock>,
    held_in_store: Option<Box<HeldInStore>>,
    /// The snapshot that the next one follows.
    last: Option<Predecessor>,
    /// Successors of `last` that do not count: a run that the invocation passed over, or the invocation's
    /// own.
    beside: Vec<SnapshotId>,
    /// The session's latest snapshot as known to this invocation.
    tip: Option<Predecessor>,
    /// The snapshot and the number of commits that the invocation has seen under the turn lock.
    seen: Seen,
    /// Whether the snapshot that the next one follows has no successor; if it has, the next one begins a
    /// branch. On a linear timeline, whether it is the tip.
    at_tip: bool,
    /// On a linear timeline, the rewind that the next snapshot carries out.
    rewind: Option<Box<RewindDue>>,
    /// The open turn of another worker, which this invocation replays first.
    taken_up: Option<Box<OpenTurn>>,
    /// The lease of the background run that the invocation is or may become.
    lease: Lease,
    /// The earlier usage, if the invocation takes a run over.
    taken_over: Option<Box<UsedBefore>>,
}

/// The usage before an invocation began.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct UsedBefore {
    /// The usage of the conversation up to the snapshot that the invocation continues.
    pub(crate) session: UsageTotal,
    /// The usage of earlier workers of the invocation, which is part of the above.
    pub(crate) invocation: UsageTotal,
    /// The usage of earlier attempts at the replayed turn, which is part of the above.
    pub(crate) turn: UsageTotal,
    /// Whether the invocation continues a run.
    pub(crate) is_takeover: bool,
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
    pub(crate) fn new(session: StoredSession, policy: Concurrency, clock: Clock) -> Self {
        // Entered before anything of the session is read, so that no later commit is missed.
        let locks = SessionLocks::of(&session);
        let seen = Seen {
            snapshot: None,
            commits: locks.commits(),
        };
        Self {
            session,
            locks,
            clock,
            policy,
            timeline: Timeline::default(),
            ids: SnapshotIds::default(),
            failed_turns: FailedTurns::default(),
            turn_lock: None,
            held: None,
            turn_lease: None,
            asked: None,
            held_in_store: None,
            last: None,
            beside: Vec::new(),
            tip: None,
            seen,
            at_tip: true,
            rewind: None,
            taken_up: None,
            lease: Lease::first(),
            taken_over: None,
        }
    }

    /// Sets what resuming an earlier snapshot does to later ones, and how snapshots are named.
    pub(crate) fn with_rules(self, timeline: Timeline, ids: SnapshotIds, failed_turns: FailedTurns) -> Self {
        Self {
            timeline,
            ids,
            failed_turns,
            ..self
        }
    }

    /// Locks turns in the store too, with leases of this length.
    pub(crate) fn with_store_locks(self, lease: Option<Duration>) -> Self {
        Self {
            turn_lease: lease,
            ..self
        }
    }

    /// Begins the session.
    pub(crate) fn begin(&mut self) {
        self.watch_lock();
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
        let is_linear = self.timeline == Timeline::Linear;
        let is_latest = Some(&snapshot.id) == self.tip_id();
        self.at_tip = if is_linear { is_latest } else { !is_followed };
        self.rewind = (is_linear && !is_latest).then(|| Box::new(RewindDue::To(snapshot.id.clone())));
        self.seen.snapshot = if is_linear {
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
        self.seen.snapshot = self.tip_id().cloned();
        self.beside = beside;
        self.at_tip = true;
        self.watch_lock();
        Ok(())
    }

    /// Gets a handle on the lock of the next turn, so that a faster turn is noticed.
    fn watch_lock(&mut self) {
        let place = match self.timeline {
            Timeline::Linear => LockPlace::Session,
            Timeline::Branching => LockPlace::Branch(self.seen.snapshot.clone()),
        };
        self.turn_lock = self.is_exclusive().then(|| Arc::new(self.locks.lock(place)));
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
        self.taken_up = turn.map(Box::new);
        // The lease in the snapshot is already this worker's: the takeover has written it.
        self.lease = run.lease()?.unwrap_or_else(Lease::first);
        self.last = parent.map(Predecessor::of).transpose()?;
        if let Some(last) = &mut self.last {
            last.counted_with = run.counted_with().cloned();
        }
        let session = run.usage().unwrap_or_default();
        let note = run.background_run()?;
        let before_run = note.and_then(|run| run.used_before);
        self.taken_over = Some(Box::new(UsedBefore {
            session,
            invocation: session - before_run.unwrap_or_default(),
            turn: note.and_then(|run| run.used_in_turn).unwrap_or_default(),
            is_takeover: true,
        }));
        self.tip = Some(Predecessor::of(run)?);
        self.seen.snapshot = Some(run.snapshot_id.clone());
        self.beside = vec![run.snapshot_id.clone()];
        self.watch_lock();
        // The run writes only its own, existing snapshot, so nothing depends on the turn lock.
        let _ = self.take_lock(&run.snapshot_id);
        Ok(())
    }

    /// Returns the tenant whose session this is.
    pub(crate) fn scope(&self) -> &Scope {
        self.session.tenant().scope()
    }

    pub(crate) fn can_watch(&self) -> bool {
        self.session.tenant().store().can_watch()
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
        self.taken_over.as_deref().copied().unwrap_or_else(|| UsedBefore {
            session: self.last.as_ref().and_then(|last| last.usage).unwrap_or_default(),
            ..UsedBefore::default()
        })
    }

    /// Returns the session's latest snapshot as known to this invocation.
    pub(crate) fn tip_id(&self) -> Option<&SnapshotId> {
        self.tip.as_ref().map(|tip| &tip.id)
    }

    /// Returns whether no other turn may follow the snapshot that the next one follows. A rewind must be
    /// alone in its session: otherwise it could supersede a snapshot that it never saw.
    fn is_exclusive(&self) -> bool {
        (self.at_tip || self.timeline == Timeline::Linear) && self.policy != Concurrency::Fork
    }

    /// Asks for the turn lock, for a turn or a background run of that id.
    ///
    /// # Errors
    /// `ABORTED` if the policy is to reject and another turn holds the lock or was faster.
    pub(crate) fn take_lock(&mut self, turn: &SnapshotId) -> Result<LockAnswer> {
        let Some(lock) = self.turn_lock.clone() else {
            return Ok(LockAnswer::Granted);
        };
        // A commit releases the lock in the store: a run that follows its turn has to request it again.
        let in_store = self.store_lock(turn).filter(|_| self.held_in_store.is_none());
        if self.held.is_some() && in_store.is_none() {
            return Ok(LockAnswer::Granted);
        }
        let guard = match self.held.take() {
            Some(guard) => Ok(guard),
            None => self.try_take(&lock, turn),
        };
        let guard = match guard {
            Ok(guard) if in_store.is_none() => {
                self.held = Some(guard);
                return Ok(LockAnswer::Granted);
            }
            Ok(guard) => Some(guard),
            Err(_) if self.policy == Concurrency::Queue => None,
            Err(error) => return Err(error),
        };
        self.asked.clone_from(&in_store);
        Ok(LockAnswer::Queued(Box::new(QueuedTurn {
            session: self.session.clone(),
            lock,
            guard,
            in_store,
            turn: turn.clone(),
            seen: self.seen.clone(),
            failed_turns: self.failed_turns,
        })))
    }

    /// Takes the lock of the first turn before the invocation begins, if it is free and the session has the
    /// version at which the store recalled it. The tracker owns the task that releases the lock if the
    /// invocation does not begin.
    ///
    /// # Errors
    /// The store's own errors.
    pub(crate) async fn take_early(
        &mut self,
        turn: &SnapshotId,
        version: i64,
        tasks: &TaskTracker,
    ) -> Result<Option<EarlyLock>> {
        let Ok(LockAnswer::Queued(queued)) = self.take_lock(turn) else {
            return Ok(None);
        };
        let Some(asked) = self.asked.clone().filter(|_| queued.guard.is_some()) else {
            return Ok(None);
        };
        let early = EarlyLock::guarding(asked, tasks);
        match queued.at_version(version).wait().await {
            Ok(awaited) => {
                self.keep_lock(awaited)?;
                Ok(Some(early))
            }
            Err(error) if error.status() == Status::Aborted => {
                early.hand_over();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the lock of this process without waiting.
    fn try_take(&self, lock: &TurnLock, turn: &SnapshotId) -> Result<TurnLockGuard> {
        let guard = lock.try_take(turn)?;
        // The lock may be free because another turn has just committed. The store would refuse the snapshot
        // of a turn that missed it, but only after all of the turn's work.
        match lock.moved_since(&self.seen) {
            Some(tip) => Err(tip_moved(
                self.session_id(),
                self.seen.snapshot.as_ref(),
                Some(&tip.id),
            )),
            None => Ok(guard),
        }
    }

    /// Creates the lock in the store for a turn, if turns are locked there.
    fn store_lock(&self, turn: &SnapshotId) -> Option<StoreLock> {
        let lease = self.turn_lease?;
        let condition = self.on_snapshots();
        condition.lock_place()?;
        let request = LockRequest::new(self.session_id().clone(), turn.clone(), condition, lease);
        let request = match self.policy {
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
        self.held = Some(awaited.guard);
        self.asked = None;
        self.held_in_store = awaited.in_store.map(|lock| {
            let renewal = lock.renewed();
            Box::new(HeldInStore { lock, renewal })
        });
        self.seen.commits = awaited.commits;
        let Some(snapshot) = awaited.moved_to else {
            return Ok(None);
        };
        let moved_to = Predecessor::of(&snapshot)?;
        self.seen.snapshot = Some(moved_to.id.clone());
        let is_newer = |tip: &Predecessor| tip.position() < moved_to.position();
        if self.timeline == Timeline::Linear || self.tip.as_ref().is_none_or(is_newer) {
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
        self.held = None;
        let held = self.held_in_store.take().map(|held| held.lock);
        held.or(self.asked.take()).map(StoreLock::release)
    }

    /// Forgets a lock in the store that another turn has.
    pub(crate) fn was_refused(&mut self) {
        self.asked = None;
    }

    /// Renews the lease of the lock in the store, for as long as it is polled.
    pub(crate) async fn renew_lock(&mut self) -> Infallible {
        match &mut self.held_in_store {
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
        match &self.held_in_store {
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
        match self.timeline {
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
        let now = self.clock.now();
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

    /// Reads the state in the last snapshot if the next one follows a head.
    ///
    /// # Errors
    /// The store's own errors.
    pub(crate) fn state_before_head(
        &self,
    ) -> impl Future<Output = Result<Option<SessionState>>> + Send + use<> {
        let listed = self.listed().filter(|_| self.is_at_head()).cloned();
        let tenant = self.session.tenant().clone();
        async move {
            let Some(listed) = listed else {
                return Ok(None);
            };
            let snapshot = tenant.get(&listed, Detail::Whole).await?;
            Ok(snapshot.and_then(|snapshot| snapshot.state))
        }
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
        Some(JournalLocation {
            session: self.session.clone(),
            key: TurnKey::new(LazyLock::new(key)),
            turn,
            past: open.map_or(0, |turn| turn.records),
            guard: JournalGuard::new(reserved.clone(), self.lease, self.precondition()),
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
        let base = self.last().cloned();
        match (self.policy, call) {
            (Concurrency::Fork, Some(call)) => TurnPlace {
                base: None,
                length: 0,
                own: Some(call.into()),
            },
            (Concurrency::Fork, None) => TurnPlace {
                base,
                length,
                own: Some(reserved.clone()),
            },
            _ => TurnPlace {
                base,
                length,
                own: None,
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
            (self.policy != Concurrency::Fork || is_repeated(left)).then_some(left)
        };
        self.taken_up.as_deref().or_else(resumed)
    }

    /// Notes that the turn has ended. The next one is another turn, unless this one failed in its middle and
    /// may continue there.
    pub(crate) fn turn_ended(&mut self, stands: bool) {
        self.taken_up = None;
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
        let named_by_content =
            self.ids == SnapshotIds::ContentAddressed && snapshot.snapshot_id.is_content_addressed();
        // On a linear timeline every snapshot must become the tip, even one that existed before.
        let only_tip = self.tip_id().filter(|_| self.timeline == Timeline::Linear);
        let new = NewSnapshot {
            session: self.session.clone(),
            precondition: self.condition(releases_lock(&snapshot)),
            rewind: self.rewind.as_deref().cloned(),
            named_by_content,
            as_of: self.locks.commits(),
            only_tip: only_tip.cloned(),
            snapshot,
            journals,
        };
        new.write()
    }

    /// Moves to a saved snapshot, which the next one follows. It has no successor, unless it existed before
    /// and the session may branch.
    pub(crate) fn wrote(&mut self, saved: &Saved) {
        if !saved.is_new {
            // Nothing was written that could have moved the lock in the store, so it is the lock of another
            // place now.
            self.asked = self.held_in_store.take().map(|held| held.lock);
        } else if releases_lock(&saved.snapshot) {
            self.held_in_store = None;
        }
        if !saved.is_tip {
            self.seen.commits = saved.as_of;
            return self.follow(saved.predecessor.clone(), saved.is_followed);
        }
        let id = &saved.snapshot.snapshot_id;
        let unfinished = saved.unfinished.clone();
        self.rewind = unfinished.map(|rewind| Box::new(RewindDue::Unfinished(rewind)));
        self.tip = Some(saved.predecessor.clone());
        if let Some(lock) = &self.turn_lock {
            self.seen = lock.committed(id);
        }
        // A pending snapshot is the tip, but the turns of its run still continue from its parent.
        if saved.snapshot.status == SnapshotStatus::Pending {
            return self.beside.push(id.clone());
        }
        self.last.clone_from(&self.tip);
        self.beside.clear();
        self.at_tip = true;
        if self.turn_lock.is_none() {
            self.begin_branch(saved);
        }
    }

    /// Notes that the invocation has begun a branch, which others may continue from now on. If the snapshot
    /// is from the middle of a turn, the turn holds the branch's lock.
    fn begin_branch(&mut self, saved: &Saved) {
        let id = &saved.snapshot.snapshot_id;
        self.seen.snapshot = Some(id.clone());
        self.watch_lock();
        if let Some(lock) = &self.turn_lock {
            self.seen = lock.committed(id);
        }
        if saved.snapshot.event == Some(SnapshotEvent::RoundEnd) {
            self.held = self.turn_lock.as_ref().and_then(|lock| lock.try_take(id).ok());
        }
    }

    /// Writes the snapshot of a turn that failed. It carries out no rewind: next to the snapshots that a
    /// rewind would have replaced, it is superseded until it is resumed. Pass the outcome to
    /// [`InvocationCursor::kept`].
    pub(crate) fn keep(&self, snapshot: Snapshot) -> impl Future<Output = Result<Saved>> + Send + use<> {
        let orphaned = self.rewind.is_some();
        let new = NewSnapshot {
            session: self.session.clone(),
            precondition: if orphaned {
                Precondition::None
            } else {
                self.condition(true)
            },
            rewind: None,
            named_by_content: false,
            as_of: self.locks.commits(),
            only_tip: None,
            snapshot: Snapshot { orphaned, ..snapshot },
            journals: Vec::new(),
        };
        new.write()
    }

    /// Moves to the snapshot of a turn that failed, unless it is superseded.
    pub(crate) fn kept(&mut self, saved: &Saved) {
        if !saved.snapshot.orphaned {
            self.wrote(saved);
        }
    }

    /// Changes a snapshot, which then holds the turns of these journals.
    pub(crate) fn change(
        &self,
        id: SnapshotId,
        transition: Transition,
        journals: Vec<JournalKey>,
    ) -> impl Future<Output = Result<Option<Snapshot>>> + Send + use<> {
        let tenant = self.session.tenant().clone();
        async move {
            tenant
                .commit(&id, Precondition::None, transition, &journals)
                .await
        }
    }

    /// Reads a snapshot without its state.
    pub(crate) fn read(
        &self,
        id: SnapshotId,
    ) -> impl Future<Output = Result<Option<Snapshot>>> + Send + use<> {
        let tenant = self.session.tenant().clone();
        async move { tenant.get(&id, Detail::Metadata).await }
    }

    pub(crate) fn watch(&self, id: &SnapshotId) -> Option<StatusStream> {
        self.session.tenant().watch(id)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Returns whether writing a snapshot ends the need for its turn's lock in the store. A snapshot in the
/// middle of a turn does not. A pending snapshot does, because its run has a separate lease.
fn releases_lock(snapshot: &Snapshot) -> bool {
    snapshot.event != Some(SnapshotEvent::RoundEnd)
}
