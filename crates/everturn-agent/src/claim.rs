//! One writer per session: who runs a turn on it in this process.
//!
//! A turn that starts at a session's tip claims the session until it has committed or failed. The claim is what makes a
//! second turn fail at once, or wait, instead of doing its work for nothing; the commit itself is checked by the store,
//! so correctness never rests on this table. It also remembers the newest row committed in this process while anybody
//! is interested in the session, so that a turn knows without asking the store whether the tip moved under it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use everturn_core::{Error, Reason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::lock::lock;
use crate::store::{Scope, SessionStore};
use crate::{SessionId, SnapshotId};

/// What happens when a turn starts while another one runs on the same session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Concurrency {
    /// The second fails at once with `ABORTED` and says which turn holds the session.
    #[default]
    Reject,
    /// The second waits its turn, in order of arrival, and goes on from where the first left the session.
    Queue,
    /// Both run; the second becomes a branch.
    Fork,
}

/// Another turn holds the session.
pub const SESSION_BUSY: Reason = Reason::new("session-busy");

type Key = (usize, Scope, SessionId);

/// The sessions that somebody is interested in, and how many are.
type Sessions = HashMap<Key, (usize, Arc<Entry>)>;

static SESSIONS: LazyLock<Mutex<Sessions>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Entry {
    turns: Arc<Semaphore>,
    known: Mutex<Known>,
}

/// What is known of a session.
#[derive(Debug, Default)]
struct Known {
    holder: Option<SnapshotId>,
    tip: Option<SnapshotId>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(1)),
            known: Mutex::default(),
        }
    }
}

impl Entry {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

/// An invocation's interest in a session; the session is forgotten here when the last one is dropped.
#[derive(Debug)]
pub(crate) struct Interest {
    key: Key,
    entry: Arc<Entry>,
}

/// The right to run a turn on a session, until dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    entry: Arc<Entry>,
    _permit: OwnedSemaphorePermit,
}

fn sessions() -> MutexGuard<'static, Sessions> {
    lock(&SESSIONS)
}

impl Interest {
    /// Two stores are the same if they are behind the same pointer.
    pub(crate) fn in_session(store: &Arc<dyn SessionStore>, scope: &Scope, session: &SessionId) -> Self {
        let identity = Arc::as_ptr(store).cast::<()>().addr();
        let key = (identity, scope.clone(), session.clone());
        let mut sessions = sessions();
        let (interested, entry) = sessions.entry(key.clone()).or_default();
        *interested += 1;
        let entry = Arc::clone(entry);
        Self { key, entry }
    }

    /// Claims the session for a turn, or says which turn holds it.
    pub(crate) fn claim_now(&self, turn: &SnapshotId) -> Result<Claim, Error> {
        // Locked first, so that whoever is refused finds the name of the one that was not.
        let mut known = self.entry.known();
        match Arc::clone(&self.entry.turns).try_acquire_owned() {
            Ok(permit) => {
                known.holder = Some(turn.clone());
                Ok(self.claimed(permit))
            }
            Err(_) => Err(busy(&self.key.2, known.holder.as_ref())),
        }
    }

    /// Claims the session for a turn, after those that came before.
    pub(crate) async fn claim_in_order(&self, turn: &SnapshotId) -> Claim {
        let permit = Arc::clone(&self.entry.turns)
            .acquire_owned()
            .await
            .expect("the semaphore of a session is never closed");
        self.entry.known().holder = Some(turn.clone());
        self.claimed(permit)
    }

    fn claimed(&self, permit: OwnedSemaphorePermit) -> Claim {
        Claim {
            entry: Arc::clone(&self.entry),
            _permit: permit,
        }
    }

    /// The newest row committed in this process, if any was while somebody was interested.
    pub(crate) fn tip(&self) -> Option<SnapshotId> {
        self.entry.known().tip.clone()
    }

    /// Notes that a row was committed.
    pub(crate) fn committed(&self, row: &SnapshotId) {
        self.entry.known().tip = Some(row.clone());
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut sessions = sessions();
        if let Some((interested, _)) = sessions.get_mut(&self.key) {
            *interested -= 1;
            if *interested == 0 {
                sessions.remove(&self.key);
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.entry.known().holder = None;
        // The permit goes after this body, so that the next holder writes its name after ours is gone.
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

    fn store() -> Arc<dyn SessionStore> {
        Arc::new(MemoryStore::new())
    }

    #[tokio::test]
    async fn the_second_turn_is_told_who_holds_the_session() {
        let (store, scope, session) = (store(), Scope::default(), SessionId::from("s"));
        let one = Interest::in_session(&store, &scope, &session);
        let two = Interest::in_session(&store, &scope, &session);

        let held = one.claim_now(&"turn-1".into()).unwrap();
        let refused = two.claim_now(&"turn-2".into()).unwrap_err();
        drop(held);
        let granted = two.claim_now(&"turn-2".into());

        assert!(refused.is(SESSION_BUSY));
        assert!(refused.message().contains("turn-1"), "{refused}");
        assert!(granted.is_ok());
    }

    #[tokio::test]
    async fn waiting_turns_are_served_in_order_of_arrival() {
        let (store, scope, session) = (store(), Scope::default(), SessionId::from("s"));
        let interest = Interest::in_session(&store, &scope, &session);
        let held = interest.claim_now(&"turn-0".into()).unwrap();
        let served = Mutex::new(Vec::new());
        let wait = async |turn: &str| {
            let claim = interest.claim_in_order(&turn.into()).await;
            served.lock().unwrap().push(turn.to_owned());
            drop(claim);
        };

        tokio::join!(wait("turn-1"), wait("turn-2"), wait("turn-3"), async {
            drop(held);
        });

        assert_eq!(*served.lock().unwrap(), ["turn-1", "turn-2", "turn-3"]);
    }

    #[test]
    fn a_session_nobody_cares_about_is_forgotten() {
        let (store, scope, session) = (store(), Scope::default(), SessionId::from("s"));
        let interest = Interest::in_session(&store, &scope, &session);
        interest.committed(&"row".into());
        let key = interest.key.clone();
        assert_eq!(interest.tip(), Some("row".into()));

        drop(interest);

        assert!(!sessions().contains_key(&key));
    }
}
