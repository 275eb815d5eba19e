//! The turn lock: one turn at a time continues a snapshot in this process. [`StoreLock`] is its counterpart
//! for all processes that share a store.
//!
//! A turn that continues a snapshot without a successor holds a lock until it has committed or failed. The
//! lock belongs to the branch that the turn extends and moves along with every snapshot committed there;
//! turns elsewhere in the session's tree have separate locks. On a linear timeline the session has one lock.
//! The lock makes a second turn fail at once, or wait, before it calls a model. Correctness never depends on
//! it: the store checks again inside the commit. The lock also remembers the newest snapshot that this
//! process committed under it, so that a turn can determine without reading the store whether its snapshot
//! has been continued since it was read.

mod in_store;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock};

use everturn_core::{Error, Reason, Result};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::in_store::TurnLocking;
pub(crate) use self::in_store::{EarlyLock, StoreLock, TURN_LEASE};
use crate::policy::{FailedTurns, resumable};
use crate::storage::stored_session::StoredSession;
use crate::store::{Detail, LockPlace, Scope, tip_moved};
use crate::{SessionId, Snapshot, SnapshotId};

/// How many places of a lock are remembered, and how many locks without handles a session keeps. They let an
/// invocation find the lock although another one has continued the snapshot that it read as the end of a
/// branch.
const REMEMBERED: usize = 16;

/// What happens to a turn that starts while another turn continues the same snapshot.
///
/// Turns that continue different snapshots of a session are branches, and run side by side under every
/// policy. On a [linear timeline](crate::Timeline::Linear) there are no branches, and the policy applies to
/// any two turns of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Concurrency {
    /// The second turn fails at once with `ABORTED`; the error names the turn that holds the session.
    #[default]
    Reject,
    /// The second turn waits, in order of arrival, and continues from where the first one left the
    /// conversation.
    Queue,
    /// Both turns run, and the second becomes a branch.
    Fork,
}

impl Concurrency {
    /// Returns the name of the policy in an agent's metadata.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Queue => "queue",
            Self::Fork => "fork",
        }
    }
}

/// The reason of a refusal because another turn holds the session.
pub const SESSION_BUSY: Reason = Reason::new("session-busy");

/// A session of a store, which is known by its address.
type Key = (usize, Scope, SessionId);

static SESSIONS: LazyLock<Mutex<HashMap<Key, Session>>> = LazyLock::new(Mutex::default);

/// A session with invocations in this process.
#[derive(Debug, Default)]
struct Session {
    invocations: usize,
    /// The number of snapshots that this process committed meanwhile.
    commits: u64,
    /// Every lock, and how many handles it has. The most recently used are at the end.
    locks: Vec<(usize, Arc<Entry>)>,
}

#[derive(Debug)]
struct Entry {
    /// One permit: the lock itself.
    permit: Arc<Semaphore>,
    known: Mutex<Known>,
}

/// The facts about a branch, or about a session with one lock, in this process.
#[derive(Debug, Default)]
struct Known {
    /// The turn that holds the lock.
    holder: Option<SnapshotId>,
    /// The newest snapshot that this process committed.
    tip: Option<CommittedTip>,
    /// The places at which the lock is found.
    positions: VecDeque<LockPlace>,
}

impl Entry {
    fn at(place: LockPlace) -> Self {
        Self {
            permit: Arc::new(Semaphore::new(1)),
            known: Mutex::new(Known {
                positions: VecDeque::from([place]),
                ..Known::default()
            }),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

/// A snapshot that this process committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommittedTip {
    pub(crate) id: SnapshotId,
    /// Its number among the commits to the session.
    number: u64,
}

/// A snapshot that an invocation has seen, and the number of commits to the session before it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) snapshot: Option<SnapshotId>,
    pub(crate) commits: u64,
}

/// An invocation's presence in its session. A session without one is forgotten.
#[derive(Debug)]
pub(crate) struct SessionLocks {
    key: Key,
}

/// An invocation's handle on a turn lock.
#[derive(Debug)]
pub(crate) struct TurnLock {
    session: Arc<SessionLocks>,
    entry: Arc<Entry>,
}

/// Holds a turn lock until it is dropped.
#[derive(Debug)]
pub(crate) struct TurnLockGuard {
    entry: Arc<Entry>,
    _permit: OwnedSemaphorePermit,
}

/// The answer to a turn that requests the lock.
pub(crate) enum LockAnswer {
    /// The turn may start.
    Granted,
    /// The turn has to wait.
    Queued(Box<QueuedTurn>),
}

/// A turn that waits for the lock, or requests it in the store.
pub(crate) struct QueuedTurn {
    pub(crate) session: StoredSession,
    pub(crate) lock: Arc<TurnLock>,
    /// The lock, if the turn has it in this process already.
    pub(crate) guard: Option<TurnLockGuard>,
    /// The lock in the store, if the turn must have that too.
    pub(crate) in_store: Option<StoreLock>,
    pub(crate) turn: SnapshotId,
    /// The snapshot that the turn's invocation has seen.
    pub(crate) seen: Seen,
    pub(crate) failed_turns: FailedTurns,
}

/// The lock after a wait for it.
pub(crate) struct AwaitedLock {
    pub(crate) guard: TurnLockGuard,
    /// The lock in the store, if turns are locked there.
    pub(crate) in_store: Option<StoreLock>,
    /// The number of commits to the session before the snapshot was read.
    pub(crate) commits: u64,
    /// The snapshot that the conversation came to during the wait, if it moved.
    pub(crate) moved_to: Option<Snapshot>,
}

fn sessions() -> MutexGuard<'static, HashMap<Key, Session>> {
    SESSIONS.lock()
}

impl SessionLocks {
    /// Enters a session. Two stores are the same if they are behind the same pointer.
    pub(crate) fn of(session: &StoredSession) -> Arc<Self> {
        let tenant = session.tenant();
        let store = Arc::as_ptr(tenant.store()).cast::<()>().addr();
        let key = (store, tenant.scope().clone(), session.id().clone());
        sessions().entry(key.clone()).or_default().invocations += 1;
        Arc::new(Self { key })
    }

    /// Returns how many snapshots this process committed to the session since its first invocation.
    pub(crate) fn commits(&self) -> u64 {
        self.with(|session| session.commits)
    }

    /// Returns a handle on the lock for this part of the session.
    pub(crate) fn lock(self: &Arc<Self>, place: LockPlace) -> TurnLock {
        let entry = self.with(|session| {
            let locks = &mut session.locks;
            let known = locks
                .iter()
                .position(|(_, entry)| entry.known().positions.contains(&place));
            let (handles, entry) = match known {
                Some(index) => locks.remove(index),
                None => (0, Arc::new(Entry::at(place))),
            };
            locks.push((handles + 1, Arc::clone(&entry)));
            entry
        });
        TurnLock {
            session: Arc::clone(self),
            entry,
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Session) -> T) -> T {
        let mut sessions = sessions();
        work(sessions.entry(self.key.clone()).or_default())
    }
}

impl Drop for SessionLocks {
    fn drop(&mut self) {
        let mut sessions = sessions();
        if let Some(session) = sessions.get_mut(&self.key) {
            session.invocations -= 1;
            if session.invocations == 0 {
                sessions.remove(&self.key);
            }
        }
    }
}

impl TurnLock {
    /// Takes the lock for a turn without waiting.
    ///
    /// # Errors
    /// `ABORTED` with [`SESSION_BUSY`] if another turn, which the error names, holds it.
    pub(crate) fn try_take(&self, turn: &SnapshotId) -> Result<TurnLockGuard> {
        // Taken before the permit, so that a turn that is refused finds the name of the one that was not.
        let mut known = self.entry.known();
        match Arc::clone(&self.entry.permit).try_acquire_owned() {
            Ok(permit) => {
                known.holder = Some(turn.clone());
                Ok(self.guard(permit))
            }
            Err(_) => Err(busy(&self.session.key.2, known.holder.as_ref())),
        }
    }

    /// Takes the lock for a turn that has seen this, without waiting.
    ///
    /// # Errors
    /// As [`TurnLock::try_take`]; `ABORTED` with [`TIP_MOVED`](crate::store::TIP_MOVED) if another turn has
    /// just committed: the store would refuse the snapshot of this one, but only after all of the turn's
    /// work.
    pub(crate) fn try_take_at(&self, turn: &SnapshotId, seen: &Seen) -> Result<TurnLockGuard> {
        let guard = self.try_take(turn)?;
        match self.moved_since(seen) {
            Some(tip) => Err(tip_moved(
                &self.session.key.2,
                seen.snapshot.as_ref(),
                Some(&tip.id),
            )),
            None => Ok(guard),
        }
    }

    /// Waits for the turns that asked before, then takes the lock for this one.
    pub(crate) async fn take_in_order(&self, turn: &SnapshotId) -> TurnLockGuard {
        let permit = Arc::clone(&self.entry.permit)
            .acquire_owned()
            .await
            .expect("the semaphore of a session is never closed");
        self.entry.known().holder = Some(turn.clone());
        self.guard(permit)
    }

    fn guard(&self, permit: OwnedSemaphorePermit) -> TurnLockGuard {
        TurnLockGuard {
            entry: Arc::clone(&self.entry),
            _permit: permit,
        }
    }

    /// Returns the newest snapshot that this process committed under the lock, if it is newer than `seen`.
    pub(crate) fn moved_since(&self, seen: &Seen) -> Option<CommittedTip> {
        let tip = self.entry.known().tip.clone()?;
        // A commit from before the snapshot was read is settled: the store has taken it into account.
        let is_news = tip.number > seen.commits && Some(&tip.id) != seen.snapshot.as_ref();
        Some(tip).filter(|_| is_news)
    }

    /// Notes that this process committed a snapshot under the lock, which is now the end of the branch.
    /// Returns it as seen by the invocation.
    pub(crate) fn committed(&self, snapshot: &SnapshotId) -> Seen {
        let number = self.session.with(|session| {
            session.commits += 1;
            session.commits
        });
        let mut known = self.entry.known();
        known.tip = Some(CommittedTip {
            id: snapshot.clone(),
            number,
        });
        if !known.positions.contains(&LockPlace::Session) {
            known
                .positions
                .push_back(LockPlace::Branch(Some(snapshot.clone())));
            if known.positions.len() > REMEMBERED {
                known.positions.pop_front();
            }
        }
        Seen {
            snapshot: Some(snapshot.clone()),
            commits: number,
        }
    }

    /// Reads `tip`, the snapshot at the end of the branch or session of this lock.
    async fn read_tip(&self, session: &StoredSession, tip: &SnapshotId) -> Result<Option<Snapshot>> {
        if self.entry.known().positions.contains(&LockPlace::Session) {
            return session.tip(Detail::Whole).await;
        }
        session.tenant().get(tip, Detail::Whole).await
    }
}

impl QueuedTurn {
    /// Waits for the lock, then reads the new end of the branch if it moved during the wait.
    ///
    /// # Errors
    /// The store's error; `ABORTED` if a turn of another process has the lock in the store and this one does
    /// not wait; `FAILED_PRECONDITION` if the conversation cannot be resumed from there.
    pub(crate) async fn wait(self) -> Result<AwaitedLock> {
        let guard = match self.guard {
            Some(guard) => guard,
            None => self.lock.take_in_order(&self.turn).await,
        };
        let commits = self.lock.session.commits();
        let mut moved_to = match self.lock.moved_since(&self.seen) {
            Some(tip) => self.lock.read_tip(&self.session, &tip.id).await?,
            None => None,
        };
        let mut in_store = self.in_store;
        if let Some(lock) = &mut in_store {
            if let Some(snapshot) = &moved_to {
                lock.move_to(snapshot);
            }
            // Boxed because few stores lock turns, and the future is large.
            moved_to = Box::pin(lock.take()).await?.or(moved_to);
        }
        Ok(AwaitedLock {
            guard,
            in_store,
            commits,
            moved_to: moved_to
                .map(|snapshot| resumable(snapshot, self.failed_turns))
                .transpose()?,
        })
    }
}

impl Drop for TurnLock {
    fn drop(&mut self) {
        self.session.with(|session| {
            let locks = &mut session.locks;
            for (handles, entry) in locks.iter_mut() {
                *handles -= usize::from(Arc::ptr_eq(entry, &self.entry));
            }
            let mut surplus = locks.iter().filter(|(handles, _)| *handles == 0).count();
            locks.retain(|(handles, _)| {
                let goes = *handles == 0 && surplus > REMEMBERED;
                surplus -= usize::from(goes);
                !goes
            });
        });
    }
}

impl Drop for TurnLockGuard {
    fn drop(&mut self) {
        self.entry.known().holder = None;
        // The permit is dropped after this body, so that the next holder writes its name after this name is
        // removed.
    }
}

fn busy(session: &SessionId, holder: Option<&SnapshotId>) -> Error {
    let holder = holder.map_or_else(|| "another turn".to_owned(), |turn| format!("turn '{turn}'"));
    Error::aborted(format!(
        "session '{session}' is held by {holder}; retry when it has ended"
    ))
    .with_reason(SESSION_BUSY)
    .with_public()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::stored_session::TenantStore;
    use crate::store::MemoryStore;

    fn session() -> StoredSession {
        TenantStore::new(Arc::new(MemoryStore::new()), Scope::default()).session("s".into())
    }

    fn at(snapshot: &str) -> LockPlace {
        LockPlace::Branch(Some(snapshot.into()))
    }

    #[tokio::test]
    async fn a_refused_turn_names_the_turn_that_holds_the_session() {
        let locks = SessionLocks::of(&session());
        let (one, two) = (locks.lock(at("a")), locks.lock(at("a")));

        let held = one.try_take(&"turn-1".into()).unwrap();
        let refused = two.try_take(&"turn-2".into()).unwrap_err();
        drop(held);
        let granted = two.try_take(&"turn-2".into());

        assert!(refused.is(SESSION_BUSY));
        assert!(refused.message().contains("turn-1"), "{refused}");
        assert!(granted.is_ok());
    }

    #[tokio::test]
    async fn waiting_turns_take_the_lock_in_order_of_arrival() {
        let lock = SessionLocks::of(&session()).lock(at("a"));
        let held = lock.try_take(&"turn-0".into()).unwrap();
        let served = Mutex::new(Vec::new());
        let wait = async |turn: &str| {
            let guard = lock.take_in_order(&turn.into()).await;
            served.lock().push(turn.to_owned());
            drop(guard);
        };

        tokio::join!(wait("turn-1"), wait("turn-2"), wait("turn-3"), async {
            drop(held);
        });

        assert_eq!(*served.lock(), ["turn-1", "turn-2", "turn-3"]);
    }

    #[test]
    fn a_session_without_invocations_is_forgotten() {
        let locks = SessionLocks::of(&session());
        let lock = locks.lock(LockPlace::Branch(None));
        lock.committed(&"snapshot".into());
        let key = locks.key.clone();

        drop((lock, locks));

        assert!(!sessions().contains_key(&key));
    }

    #[test]
    fn turns_on_two_branches_have_locks_of_their_own() {
        let locks = SessionLocks::of(&session());
        let (trunk, branch) = (locks.lock(at("tip")), locks.lock(at("leaf")));

        let held = trunk.try_take(&"turn-1".into()).unwrap();
        let beside = branch.try_take(&"turn-2".into());

        assert!(beside.is_ok());
        drop(held);
    }

    #[test]
    fn a_lock_continues_with_its_branch() {
        let locks = SessionLocks::of(&session());
        let lock = locks.lock(at("a"));
        lock.committed(&"b".into());

        let held = lock.try_take(&"turn-1".into()).unwrap();
        let refused = ["a", "b"].map(|place| {
            let same = locks.lock(at(place));
            same.try_take(&"turn-2".into()).unwrap_err()
        });

        assert!(refused.iter().all(|error| error.is(SESSION_BUSY)));
        drop(held);
    }

    #[test]
    fn a_turn_that_came_and_went_since_a_snapshot_was_read_is_noticed() {
        let late = SessionLocks::of(&session());
        let seen = |locks: &SessionLocks, snapshot: &str| Seen {
            snapshot: Some(snapshot.into()),
            commits: locks.commits(),
        };
        let before = seen(&late, "a");

        let stands = late.lock(at("a")).committed(&"b".into());

        let lock = late.lock(at("a"));
        let moved = lock.moved_since(&before).map(|tip| tip.id);
        assert_eq!(moved, Some("b".into()));
        assert_eq!(lock.moved_since(&stands), None);
        // Read after the commit: the store reports that nothing follows "a" any more.
        assert_eq!(lock.moved_since(&seen(&late, "a")), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let locks = SessionLocks::of(&session());
        let lock = locks.lock(at("first"));
        for turn in 0..100 {
            lock.committed(&format!("turn-{turn}").as_str().into());
            drop(locks.lock(at(&format!("branch-{turn}"))));
        }

        assert_eq!(lock.entry.known().positions.len(), REMEMBERED);
        assert_eq!(locks.with(|session| session.locks.len()), REMEMBERED + 1);
    }
}
