//! The turn lock in the store: one turn at a time continues a snapshot in all processes.
//!
//! A turn takes it after the lock of its process and before it calls a model or a tool, and its commit
//! releases it. The lock has a lease, which the driver renews while the turn runs, so a process that dies
//! releases it.

use std::convert::Infallible;
use std::time::Duration;

use everturn_core::{Result, Status};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::{LockAnswer, busy};
use crate::invocation::cursor::InvocationCursor;
use crate::storage::stored_session::StoredSession;
use crate::store::{LockGrant, LockRequest, Precondition, TIP_MOVED, TurnLocks};
use crate::{Snapshot, SnapshotId};

/// How long a turn holds its lock in the store without a renewal, unless the agent sets another time.
pub(crate) const TURN_LEASE: Duration = Duration::from_secs(15);

/// The first wait of a queued turn before it asks again; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// How many renewals a lease has room for.
const RENEWALS: u32 = 3;

/// Where the turns of an agent are locked against each other.
///
/// The store's precondition keeps two turns from continuing one snapshot in any case. A lock makes the second
/// turn fail, or wait, before it calls a model or a tool, instead of failing when it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TurnLocking {
    /// In the store if that is the store's default, as it is for `everturn-postgres`; else in this process.
    #[default]
    StoreDefault,
    /// In this process only. Turns in other processes are noticed when a turn commits.
    InProcess,
    /// In the store, for one more small write per turn: turns of all processes that share the store exclude
    /// each other.
    InStore,
}

/// The lock of one turn in the store.
#[derive(Debug, Clone)]
pub(crate) struct StoreLock {
    session: StoredSession,
    request: LockRequest,
}

impl StoreLock {
    pub(crate) fn new(session: StoredSession, request: LockRequest) -> Self {
        Self { session, request }
    }

    fn locks(&self) -> Option<&dyn TurnLocks> {
        self.session.tenant().store().turn_locks()
    }

    /// Returns the turn that the lock is for.
    pub(crate) fn turn(&self) -> &SnapshotId {
        &self.request.turn
    }

    /// Requests the lock without waiting, and only if the session has the version at which the store recalled
    /// it.
    pub(super) fn at_version(self, version: i64) -> Self {
        let request = LockRequest {
            waits: false,
            ..self.request
        };
        Self {
            request: request.as_of(version),
            ..self
        }
    }

    /// Asks for the lock after this snapshot, to which the conversation has moved.
    pub(super) fn move_to(&mut self, snapshot: &Snapshot) {
        let id = Some(snapshot.snapshot_id.clone());
        self.request.precondition = match self.request.precondition {
            Precondition::Tip(_) => Precondition::Tip(id),
            _ => Precondition::unfollowed(id),
        };
    }

    /// Takes the lock. A turn that waits does so in order, and follows the conversation to its new end: that
    /// snapshot is returned if the conversation moved.
    ///
    /// # Errors
    /// `ABORTED` if another turn holds the lock or was faster, and this one does not wait; the store's
    /// errors.
    pub(super) async fn take(&mut self) -> Result<Option<Snapshot>> {
        let mut moved_to = None;
        let mut wait = FIRST_WAIT;
        loop {
            let Some(locks) = self.locks() else {
                return Ok(moved_to);
            };
            let scope = self.session.tenant().scope();
            match locks.take(scope, &self.request).await {
                Ok(LockGrant::Held) => return Ok(moved_to),
                Ok(LockGrant::Taken { by }) if !self.request.waits => {
                    return Err(busy(self.session.id(), Some(&by)));
                }
                Ok(LockGrant::Taken { .. }) => {
                    locks.freed(scope, self.session.id(), wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT).min(self.request.lease / RENEWALS);
                }
                Err(error) if self.request.waits && error.is(TIP_MOVED) => {
                    let end = self.end().await?.ok_or(error)?;
                    self.move_to(&end);
                    moved_to = Some(end);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the snapshot at which the conversation ends now.
    async fn end(&self) -> Result<Option<Snapshot>> {
        match &self.request.precondition {
            Precondition::Unfollowed {
                snapshot: Some(from), ..
            } => self.session.end_of_branch(from).await,
            _ => self.session.tip(crate::store::Detail::Whole).await,
        }
    }

    /// Renews the lease until it is dropped, or another turn has the lock: then the store refuses what this
    /// turn writes.
    pub(crate) fn renewed(&self) -> BoxFuture<'static, Infallible> {
        let lock = self.clone();
        let renew = async move {
            let Some(locks) = lock.locks() else {
                return std::future::pending().await;
            };
            let LockRequest { turn, lease, .. } = &lock.request;
            loop {
                tokio::time::sleep(*lease / RENEWALS).await;
                let scope = lock.session.tenant().scope();
                match locks.renew(scope, lock.session.id(), turn, *lease).await {
                    Ok(true) => {}
                    Ok(false) => {
                        tracing::warn!(session = %lock.session.id(), %turn, "a turn lost its lock to another turn");
                        return std::future::pending().await;
                    }
                    Err(error) => {
                        tracing::warn!(session = %lock.session.id(), %turn, %error, "the lock of a turn was not renewed");
                    }
                }
            }
        };
        renew.boxed()
    }

    /// Releases the lock or the place in the queue. A lock that cannot be released lapses.
    pub(crate) fn release(self) -> BoxFuture<'static, ()> {
        let release = async move {
            let Some(locks) = self.locks() else {
                return;
            };
            let scope = self.session.tenant().scope();
            let released = locks.release(scope, self.session.id(), self.turn()).await;
            if let Err(error) = released {
                tracing::warn!(session = %self.session.id(), %error, "the lock of a turn was not released; it lapses");
            }
        };
        release.boxed()
    }
}

/// A lock in the store that is taken before its invocation has begun. Dropping it releases the lock, unless
/// the invocation has taken it over by then.
pub(crate) struct EarlyLock {
    lock: Option<StoreLock>,
    tasks: TaskTracker,
}

impl EarlyLock {
    /// Takes the lock of the first turn, if it is free and the session has the version at which the store
    /// recalled it. The tracker owns the task that releases the lock if the invocation does not begin.
    ///
    /// # Errors
    /// The store's own errors.
    pub(crate) async fn take(
        cursor: &mut InvocationCursor,
        turn: &SnapshotId,
        version: i64,
        tasks: &TaskTracker,
    ) -> Result<Option<Self>> {
        let Ok(LockAnswer::Queued(mut queued)) = cursor.take_lock(turn) else {
            return Ok(None);
        };
        let Some(lock) = queued.in_store.take().filter(|_| queued.guard.is_some()) else {
            return Ok(None);
        };
        let early = Self {
            lock: Some(lock.clone()),
            tasks: tasks.clone(),
        };
        queued.in_store = Some(lock.at_version(version));
        match queued.wait().await {
            Ok(awaited) => {
                cursor.keep_lock(awaited)?;
                Ok(Some(early))
            }
            Err(error) if error.status() == Status::Aborted => {
                early.hand_over();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Releases the lock, because the invocation does not begin.
    pub(crate) async fn release(mut self) {
        if let Some(lock) = self.lock.take() {
            lock.release().await;
        }
    }

    /// Leaves the lock to the invocation.
    pub(crate) fn hand_over(mut self) {
        self.lock = None;
    }
}

impl Drop for EarlyLock {
    fn drop(&mut self) {
        // Without a runtime, the lock lapses.
        if let (Some(lock), Ok(runtime)) = (self.lock.take(), Handle::try_current()) {
            self.tasks.spawn_on(lock.release(), &runtime);
        }
    }
}
