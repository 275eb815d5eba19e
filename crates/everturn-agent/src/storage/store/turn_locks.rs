//! Turn locks in the store: one turn at a time continues a snapshot in all processes.

use std::time::Duration;

use async_trait::async_trait;
use everturn_core::{Error, Reason, Result};

use super::{Precondition, Scope};
use crate::{SessionId, Snapshot, SnapshotId};

/// The reason of a write that failed because the turn lost its lock: its lease lapsed and another turn took
/// the lock.
pub const TURN_LOCK_LOST: Reason = Reason::new("turn-lock-lost");

/// The part of a session that a turn lock is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LockPlace {
    /// The branch that ends at this snapshot; `None` is the session's beginning.
    Branch(Option<SnapshotId>),
    /// The whole session.
    Session,
}

impl LockPlace {
    /// Returns a text that names the place within its session, for stores that keep locks as rows.
    pub fn key(&self) -> String {
        match self {
            Self::Branch(Some(snapshot)) => format!("after {snapshot}"),
            Self::Branch(None) => "beginning".to_owned(),
            Self::Session => "session".to_owned(),
        }
    }
}

/// A turn that requests its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockRequest {
    /// The session of the turn. It may have no snapshot yet.
    pub session: SessionId,
    /// The name of the turn. No other turn has it.
    pub turn: SnapshotId,
    /// The condition under which the turn will commit. It determines the [place](Precondition::lock_place) of
    /// the lock.
    pub precondition: Precondition,
    /// The time after which the lock, or the place in the queue, lapses unless it is renewed.
    pub lease: Duration,
    /// Whether the turn waits in the queue if the lock is taken.
    pub waits: bool,
    /// The version of the session at which the snapshot that the turn continues was
    /// [recalled](TurnLocks::recall); `None` if the snapshot was read.
    pub as_of: Option<i64>,
}

impl LockRequest {
    /// Creates the request of a turn that does not wait.
    pub fn new(session: SessionId, turn: SnapshotId, precondition: Precondition, lease: Duration) -> Self {
        Self {
            session,
            turn,
            precondition,
            lease,
            waits: false,
            as_of: None,
        }
    }

    everturn_core::setters! {
        /// Has the turn wait in the queue if the lock is taken.
        #[must_use]
        pub fn waiting(mut self) { self.waits = true }

        /// Has the turn be granted its lock only if the session is at the version at which its snapshot was
        /// recalled.
        #[must_use]
        pub fn as_of(mut self, version: i64) { self.as_of = Some(version) }
    }
}

/// The snapshot that a turn continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumeAt {
    /// The latest snapshot of this session.
    Tip(SessionId),
    /// This snapshot.
    Snapshot(SnapshotId),
}

/// The latest snapshot of a session as a store remembers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recalled {
    /// The snapshot, whole.
    pub snapshot: Snapshot,
    /// The version that the session had. Every change of the session gives it another, which it never had
    /// before.
    pub version: i64,
}

/// The answer to a turn that requests its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockGrant {
    /// The turn holds the lock.
    Held,
    /// Another turn holds the lock, or is before this one in the queue.
    Taken {
        /// The other turn.
        by: SnapshotId,
    },
}

/// Keeps the locks of turns in progress, for the processes that share a store.
///
/// A turn names its lock by the [`Precondition`] under which it will commit: a turn that continues a snapshot
/// locks the branch that ends there, a turn on a linear timeline the whole session.
///
/// # What it guarantees
///
/// - **One holder.** Of any number of turns that request one place, in any process, one holds the lock.
/// - **Preconditions inside the grant.** A turn is granted its lock only if its precondition holds in the
///   same step. So a turn that was too late for a snapshot is refused before it works.
/// - **Leases.** A lock whose lease has lapsed goes to the next turn that asks. The store's clock decides,
///   not that of the processes. An expired lock that no other turn has taken is still its holder's.
/// - **Fencing.** A commit or a journal record under [`Precondition::Held`] is written only while the turn
///   holds the lock, which is checked in the same step; otherwise it fails with `ABORTED` and
///   [`TURN_LOCK_LOST`].
/// - **Order.** Turns that wait for a place are granted its lock in the order in which they asked first. A
///   waiting turn keeps its place for the length of its lease; asking again renews it.
/// - **The lock moves with its branch.** A commit under [`Precondition::Held`] takes the queue, and the lock
///   unless the commit releases it, along to the snapshot that it writes.
/// - **Places are apart**: those of other tenants, sessions and branches.
/// - **What is recalled is checked.** A request with a [version](LockRequest::as_of) is granted only if no
///   process has changed the session since.
#[async_trait]
pub trait TurnLocks: Send + Sync {
    /// Asks for the lock, without waiting for other turns. A turn that holds the lock is granted it again,
    /// which renews its lease.
    ///
    /// # Errors
    /// `ABORTED` with [`TIP_MOVED`](super::TIP_MOVED) if the request's precondition does not hold, or the
    /// session does not have the request's version; the turn keeps its place in the queue. The store's own
    /// errors.
    async fn take(&self, scope: &Scope, request: &LockRequest) -> Result<LockGrant>;

    /// Renews the lease of a turn that holds its lock, and returns whether it still does.
    async fn renew(
        &self,
        scope: &Scope,
        session: &SessionId,
        turn: &SnapshotId,
        lease: Duration,
    ) -> Result<bool>;

    /// Releases the lock of a turn, and its place in the queue. A turn that has neither is not an error.
    async fn release(&self, scope: &Scope, session: &SessionId, turn: &SnapshotId) -> Result<()>;

    /// Waits until a lock of the session may have become free, for this long at most. A store without
    /// notifications sleeps.
    async fn freed(&self, scope: &Scope, session: &SessionId, at_most: Duration);

    /// Returns whether agents with this store lock turns in it by default.
    fn is_default(&self) -> bool;

    /// Returns the latest snapshot of a session, or a snapshot if it is the latest of its session, as this
    /// process remembers it. It may be out of date, so it may be used only once a lock was granted [as
    /// of](LockRequest::as_of) its version.
    ///
    /// A turn whose session is remembered needs no reading then: taking the lock shows that nothing has
    /// changed. A store that remembers nothing returns `None`.
    async fn recall(&self, scope: &Scope, at: &ResumeAt) -> Option<Recalled>;
}

/// Creates the error of a turn that lost its lock.
pub fn lock_lost(session: &SessionId, turn: &SnapshotId) -> Error {
    Error::aborted(format!(
        "turn '{turn}' of session '{session}' lost its lock to another turn because its lease lapsed: retry it"
    ))
    .with_reason(TURN_LOCK_LOST)
    .with_public()
}
