//! The turn lock: one turn at a time advances a session's tip in this process.
//!
//! A turn that starts at a session's tip holds the session's turn lock until it has committed or failed. The lock makes a
//! second turn fail at once, or wait, instead of doing its work for nothing. Correctness never rests on it: the store
//! checks the tip again inside the commit. Beside the lock stands the newest snapshot that this process committed, so that
//! a turn knows without asking the store whether the tip has moved.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use everturn_core::{Error, Reason, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::lock::lock;
use crate::reading::resumable;
use crate::store::{Detail, Scope};
use crate::stored_session::StoredSession;
use crate::{SessionId, Snapshot, SnapshotId};

/// What happens to a turn that starts while another turn runs on the same session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Concurrency {
    /// The second turn fails at once with `ABORTED`; the error names the turn that holds the session.
    #[default]
    Reject,
    /// The second turn waits, in order of arrival, and continues from where the first one left the session.
    Queue,
    /// Both turns run, and the second becomes a branch.
    Fork,
}

/// The reason of a refusal because another turn holds the session.
pub const SESSION_BUSY: Reason = Reason::new("session-busy");

/// A session of a store, which is known by its address.
type Key = (usize, Scope, SessionId);

/// The sessions with invocations in this process, and how many each has.
type Sessions = HashMap<Key, (usize, Arc<Entry>)>;

static SESSIONS: LazyLock<Mutex<Sessions>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Entry {
    /// One permit: the lock itself.
    permit: Arc<Semaphore>,
    known: Mutex<Known>,
}

/// The facts about a session that this process knows.
#[derive(Debug, Default)]
struct Known {
    /// The turn that holds the lock.
    holder: Option<SnapshotId>,
    /// The newest snapshot that this process committed.
    tip: Option<SnapshotId>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            permit: Arc::new(Semaphore::new(1)),
            known: Mutex::default(),
        }
    }
}

impl Entry {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

/// An invocation's handle on the turn lock of its session. The session's entry is removed with the last handle.
#[derive(Debug)]
pub(crate) struct TurnLock {
    key: Key,
    entry: Arc<Entry>,
}

/// Holds the turn lock of a session until it is dropped.
#[derive(Debug)]
pub(crate) struct TurnLockGuard {
    entry: Arc<Entry>,
    _permit: OwnedSemaphorePermit,
}

/// The answer to a turn that asks for the lock.
pub(crate) enum LockAnswer {
    /// The turn may start.
    Granted,
    /// The turn has to wait.
    Queued(QueuedTurn),
}

/// A turn that waits for the lock.
pub(crate) struct QueuedTurn {
    pub(crate) session: StoredSession,
    pub(crate) lock: Arc<TurnLock>,
    pub(crate) turn: SnapshotId,
    /// The session's tip as the turn's invocation knows it.
    pub(crate) known_tip: Option<SnapshotId>,
}

/// The lock after a wait for it.
pub(crate) struct AwaitedLock {
    pub(crate) guard: TurnLockGuard,
    /// The session's new tip, if it moved during the wait.
    pub(crate) moved_to: Option<Snapshot>,
}

fn sessions() -> MutexGuard<'static, Sessions> {
    lock(&SESSIONS)
}

impl TurnLock {
    /// Returns a handle on the session's lock. Two stores are the same if they are behind the same pointer.
    pub(crate) fn of(session: &StoredSession) -> Self {
        let tenant = session.tenant();
        let store = Arc::as_ptr(tenant.store()).cast::<()>().addr();
        let key = (store, tenant.scope().clone(), session.id().clone());
        let mut sessions = sessions();
        let (handles, entry) = sessions.entry(key.clone()).or_default();
        *handles += 1;
        let entry = Arc::clone(entry);
        Self { key, entry }
    }

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
            Err(_) => Err(busy(&self.key.2, known.holder.as_ref())),
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

    /// Returns the newest snapshot that this process committed to the session since the first handle was made.
    pub(crate) fn tip(&self) -> Option<SnapshotId> {
        self.entry.known().tip.clone()
    }

    /// Notes that this process committed a snapshot to the session.
    pub(crate) fn committed(&self, snapshot: &SnapshotId) {
        self.entry.known().tip = Some(snapshot.clone());
    }
}

impl QueuedTurn {
    /// Waits for the lock, then reads the session's tip if it moved during the wait.
    ///
    /// # Errors
    /// The store's error; `FAILED_PRECONDITION` if the session cannot be resumed from its new tip.
    pub(crate) async fn wait(self) -> Result<AwaitedLock> {
        let guard = self.lock.take_in_order(&self.turn).await;
        let moved = self
            .lock
            .tip()
            .is_some_and(|tip| Some(&tip) != self.known_tip.as_ref());
        let moved_to = if moved {
            let tip = self.session.tip(Detail::Whole).await?;
            tip.map(resumable).transpose()?
        } else {
            None
        };
        Ok(AwaitedLock { guard, moved_to })
    }
}

impl Drop for TurnLock {
    fn drop(&mut self) {
        let mut sessions = sessions();
        if let Some((handles, _)) = sessions.get_mut(&self.key) {
            *handles -= 1;
            if *handles == 0 {
                sessions.remove(&self.key);
            }
        }
    }
}

impl Drop for TurnLockGuard {
    fn drop(&mut self) {
        self.entry.known().holder = None;
        // The permit is dropped after this body, so that the next holder writes its name after this one is gone.
    }
}

fn busy(session: &SessionId, holder: Option<&SnapshotId>) -> Error {
    let holder = holder.map_or_else(|| "another turn".to_owned(), |turn| format!("turn '{turn}'"));
    Error::aborted(format!(
        "session '{session}' is held by {holder}; retry when it is over"
    ))
    .with_reason(SESSION_BUSY)
    .with_public()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;
    use crate::stored_session::TenantStore;

    fn session() -> StoredSession {
        TenantStore::new(Arc::new(MemoryStore::new()), Scope::default()).session("s".into())
    }

    #[tokio::test]
    async fn a_refused_turn_is_told_which_turn_holds_the_session() {
        let session = session();
        let one = TurnLock::of(&session);
        let two = TurnLock::of(&session);

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
        let session = session();
        let lock = TurnLock::of(&session);
        let held = lock.try_take(&"turn-0".into()).unwrap();
        let served = Mutex::new(Vec::new());
        let wait = async |turn: &str| {
            let guard = lock.take_in_order(&turn.into()).await;
            served.lock().unwrap().push(turn.to_owned());
            drop(guard);
        };

        tokio::join!(wait("turn-1"), wait("turn-2"), wait("turn-3"), async {
            drop(held);
        });

        assert_eq!(*served.lock().unwrap(), ["turn-1", "turn-2", "turn-3"]);
    }

    #[test]
    fn a_session_without_invocations_is_forgotten() {
        let session = session();
        let lock = TurnLock::of(&session);
        lock.committed(&"snapshot".into());
        let key = lock.key.clone();
        assert_eq!(lock.tip(), Some("snapshot".into()));

        drop(lock);

        assert!(!sessions().contains_key(&key));
    }
}
