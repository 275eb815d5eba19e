//! Stores, which keep sessions as snapshots.
//!
//! # What a store guarantees
//!
//! - **Atomic read-modify-write.** [`SessionStore::commit`] reads the snapshot, computes the new one and
//!   writes it as one step: commits of one session are *serializable*, in every process that shares the
//!   store. A commit that fails has written nothing, unless its error reports that this is unknown
//!   ([`SAVE_UNKNOWN`]).
//! - **Preconditions inside the commit.** A [`Precondition`] is checked in the same step as the write: of any
//!   number of commits that continue one snapshot, one succeeds. Commits that continue other snapshots of the
//!   session do not matter to it: branches grow side by side.
//! - **Whole snapshots.** A reader sees a snapshot as it was before or after a commit, never a part of one
//!   and never one that was not committed. A page of a list may mix states of different times; a snapshot
//!   that exists all along is on exactly one page.
//! - **Read your writes, and those of others.** Once `commit` has returned, every later read in any process
//!   sees the snapshot or a newer version of it, and the session's latest is that snapshot or a later one:
//!   reads and commits are *linearizable*.
//! - **A superseded snapshot is never the tip.** Snapshots marked [`orphaned`](Snapshot::orphaned) are never
//!   a session's latest, whether it is read, checked by a precondition, or listed, and never a successor that
//!   a precondition finds. Once the mark is taken away they can be both again.
//! - **A final snapshot keeps its status.** A commit that would change the status of a completed, failed or
//!   aborted snapshot fails with `FAILED_PRECONDITION`, and so does a commit that would move a snapshot to
//!   another session.
//! - **Tenants are isolated.** A snapshot written under one [`Scope`] cannot be reached under another by any
//!   id.
//! - **Every field survives**, including those of other versions ([`Snapshot::extra`]) and those that the
//!   framework notes for itself ([`Snapshot::bookkeeping`]).
//! - **Pending snapshots are found.** A store that can list them ([`SessionStore::pending`]) leaves out none
//!   that was acknowledged, whatever happened to the process that wrote it.
//! - **Journals**, where a store keeps them ([`SessionStore::journal`]), follow the contract of [`Journal`].
//! - **Ledgers**, where a store keeps one ([`SessionStore::ledger`]), follow the contract of [`UsageLedger`].
//! - **Turn locks**, where a store keeps them ([`SessionStore::turn_locks`]), follow the contract of
//!   [`TurnLocks`].
//! - **Level-triggered watching.** A watcher first receives the current status and finally the last one, of
//!   any process; it may miss the statuses in between.
//! - **Durability** is each store's own promise, stated in its documentation: what survives the death of the
//!   process, and what survives a loss of power, at which level.
//!
//! | store | a commit that has returned survives |
//! |---|---|
//! | [`MemoryStore`] | as long as the process |
//! | `everturn-file` | the death of the process and a loss of power |
//! | `everturn-sqlite`, `Durability::Full` | the death of the process and a loss of power |
//! | `everturn-sqlite`, `Durability::Normal` | the death of the process; power loss may lose recent commits |
//! | `everturn-postgres` | the death of the process; power loss, depending on the server's settings |
//!
//! `everturn-testkit` certifies these promises for any store.
//!
//! # What a store may leave out
//!
//! Every method is required, so that a store around another store cannot forget one. A store without one of
//! the following capabilities returns the value in the second column, and agents work without it.
//!
//! | method | without the capability | effect on agents |
//! |---|---|---|
//! | [`SessionStore::journal`] | `None` | a turn that runs again starts over |
//! | [`SessionStore::ledger`] | `None` | usage is counted from snapshots alone; tenants have no limits |
//! | [`SessionStore::turn_locks`] | `None` | of two turns at once in two processes, one fails |
//! | [`SessionStore::watch`], [`SessionStore::can_watch`] | `None`, `false` | no background runs |
//! | [`SessionStore::pending`] | `Ok(None)` | no takeover of lost background runs |
//!
//! Without a ledger, a turn that failed or died is not counted.
//!
//! A store owns the ids it is not given and keeps the session id of an existing snapshot; times and status
//! belong to the caller and are stored as they come.

mod checksum;
mod journal;
mod ledger;
mod memory;
mod precondition;
mod query;
mod turn_locks;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
pub use everturn_ai::UsageTotal;
pub use everturn_core::Scope;
use everturn_core::{Error, Result};
use futures::stream::BoxStream;

pub use self::checksum::Checksum;
pub(crate) use self::journal::BegunCall;
pub use self::journal::{
    Journal, JournalCursor, JournalGuard, JournalKey, JournalPage, JournalQuery, JournalRecord, KEPT,
    RECORD_TAKEN, TURN_TAKEN_OVER, UnfinishedTurn, has_unknown_outcome, record_taken,
};
pub use self::ledger::{
    Admission, Expense, SessionExpense, TurnAccount, TurnExpenses, UsageLedger, close_accounts, read_account,
    write_account,
};
pub use self::memory::MemoryStore;
pub(crate) use self::precondition::tip_moved;
pub use self::precondition::{Precondition, SAVE_UNKNOWN, TIP_MOVED, save_unknown};
pub use self::query::{
    Cursor, DEFAULT_PAGE, Deletion, MAX_PAGE, Order, Page, PendingCursor, PendingPage, PendingQuery,
    PendingRun, SessionQuery, SessionSummary, SnapshotQuery,
};
pub use self::turn_locks::{
    LockGrant, LockPlace, LockRequest, Recalled, ResumeAt, TURN_LOCK_LOST, TurnLocks, lock_lost,
};
pub use crate::storage::snapshot::{Bookkeeping, Lease, Mutation};
use crate::{Clock, SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// The statuses a snapshot goes through, the current one first; see [`SessionStore::watch`].
pub type StatusStream = BoxStream<'static, SnapshotStatus>;

/// How much of a snapshot to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The snapshot with its state.
    #[default]
    Whole,
    /// The snapshot without its state: cheap, whatever the conversation's length.
    Metadata,
}

impl Detail {
    /// Reduces a whole snapshot to this detail, for stores that have it available.
    pub fn cut(self, mut row: Snapshot) -> Snapshot {
        if self == Self::Metadata {
            row.state = None;
        }
        row
    }
}

/// A store of snapshots. Its guarantees are in the documentation of the [module](self).
#[async_trait]
pub trait SessionStore: fmt::Debug + Send + Sync + 'static {
    /// Reads the snapshot with this id, if it exists.
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>>;

    /// Reads the latest snapshot of a session: the one with the greatest creation time, and of those the one
    /// with the greatest id, whatever its status. Superseded snapshots are passed over. Where branches grow
    /// at once it is the newest snapshot of any of them.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the session id is empty.
    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>>;

    /// Reads the snapshot, applies `mutation`, writes the snapshot that it returns and drops the `journals`
    /// of the turns that this snapshot holds. `None` as the id makes a new one.
    ///
    /// Reading and writing are one step. Journals are dropped only if the snapshot was written: in the same
    /// step if the store can, else right after, for instance with [`drop_journals`].
    ///
    /// Returns the snapshot as written, or `None` if the mutation wrote nothing.
    ///
    /// # Errors
    /// The mutation's own error; `INVALID_ARGUMENT` for a snapshot without a session id or an id the store
    /// cannot keep; `ABORTED` with [`TIP_MOVED`] if the precondition does not hold; `FAILED_PRECONDITION` for
    /// a change of a final status, or of a snapshot's session; `UNAVAILABLE` with [`SAVE_UNKNOWN`] if the
    /// snapshot may have been written, or still be: then a later read of its id decides.
    async fn commit(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>>;

    /// Commits a snapshot that holds no journaled turns.
    ///
    /// # Errors
    /// As [`SessionStore::commit`], which is the method to implement.
    async fn save(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
    ) -> Result<Option<Snapshot>> {
        self.commit(scope, id, precondition, mutation, &[]).await
    }

    /// Returns one page of a session's snapshots.
    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>>;

    /// Returns one page of the tenant's sessions, ordered by their latest snapshots. A session that has only
    /// superseded snapshots is not listed.
    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>>;

    /// Returns the snapshots that name this one as their parent, without their states, oldest first.
    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>>;

    /// Returns one page of the tenants that have snapshots, or journals and accounts as far as the store can
    /// list them, by name; `after` is the last tenant of the page before. It is for the operator of the
    /// store, not for its tenants.
    ///
    /// A scope that carries a [readable name](Scope::tenant) when a session begins is listed with it. The
    /// name is kept in one place, and goes with the tenant's last snapshot at the latest.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if the store cannot list its tenants, which is the default.
    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        let _ = after;
        Err(Error::unimplemented("this store cannot list its tenants"))
    }

    /// Deletes snapshots for good and returns their number. Deleting a snapshot that does not exist is not an
    /// error.
    ///
    /// Nothing of the deleted text is left in files that the store keeps.
    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64>;

    /// Returns one page of the background runs of all tenants that are not over: snapshots that are
    /// `pending`, oldest first, without their states. It costs what is pending, not what is stored.
    ///
    /// Workers find runs to take over by this. It is for the operator of the store, not for its tenants.
    ///
    /// A store that cannot find them answers `Ok(None)`; no run is then taken over.
    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>>;

    /// Returns the store's journals.
    ///
    /// A store that keeps none answers `None`; a turn that runs again then starts over.
    fn journal(&self) -> Option<&dyn Journal>;

    /// Returns the store's ledger: what tenants and unfinished turns have used.
    ///
    /// A store that keeps none answers `None`; [limits](crate::Limits) then count what snapshots hold, and
    /// tenants have none.
    fn ledger(&self) -> Option<&dyn UsageLedger>;

    /// Returns the clock that gives snapshots and heartbeats their times, unless the agent is given another.
    /// A store whose processes are on several machines returns a clock that they share, so that it decides
    /// which leases have lapsed; others return [`Clock::system`].
    fn clock(&self) -> Clock;

    /// Returns the locks of turns in progress.
    ///
    /// A store that keeps none answers `None`; of two turns at once in two processes one then fails when it
    /// commits.
    fn turn_locks(&self) -> Option<&dyn TurnLocks>;

    /// Returns the statuses of a snapshot: the current one at once, then every later one or, if they come
    /// faster than they are read, at least the last. The stream of a snapshot that does not exist is empty.
    ///
    /// A store that cannot watch returns `None`, and `false` from [`SessionStore::can_watch`]; its agents
    /// have no background runs.
    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream>;

    /// Returns whether [`SessionStore::watch`] works.
    fn can_watch(&self) -> bool;
}

/// Cuts a page of tenants out of all, for [`SessionStore::tenants`].
pub fn page_of_tenants(mut all: Vec<Scope>, after: Option<&Scope>) -> Page<Scope, Scope> {
    all.retain(|tenant| after.is_none_or(|after| tenant > after));
    all.sort_unstable();
    all.dedup();
    let is_last = all.len() <= MAX_PAGE;
    all.truncate(MAX_PAGE);
    let next = all.last().filter(|_| !is_last).cloned();
    Page { items: all, next }
}

/// Returns the id to save a snapshot under: the given one, or a new one if it is missing or empty.
pub fn id_to_save(asked: Option<&SnapshotId>) -> SnapshotId {
    asked
        .cloned()
        .and_then(SnapshotId::given)
        .unwrap_or_else(SnapshotId::generate)
}

/// Applies the rules of every store to a snapshot that is about to replace the stored one, `existing`.
///
/// Sets the id, keeps the session id of the stored snapshot, and refuses changes that no snapshot may
/// undergo.
///
/// # Errors
/// As [`SessionStore::save`].
pub fn admit(id: &SnapshotId, existing: Option<&Snapshot>, mut row: Snapshot) -> Result<Snapshot> {
    row.snapshot_id = id.clone();
    row.session_id = row.session_id.take().and_then(SessionId::given);
    if let Some(existing) = existing {
        if row.session_id.is_some() && existing.session_id.is_some() && row.session_id != existing.session_id
        {
            return Err(Error::failed_precondition(format!(
                "snapshot '{id}' cannot move to another session"
            )));
        }
        // A rewrite may come from a peer that does not support session ids.
        if existing.session_id.is_some() {
            row.session_id.clone_from(&existing.session_id);
        }
        // Other fields may change: labels and notes are put on finished snapshots.
        if existing.status.is_final() && existing.status != row.status {
            return Err(Error::failed_precondition(format!(
                "snapshot '{id}' is final and keeps its status"
            )));
        }
    }
    if row.session_id.is_none() {
        return Err(Error::invalid_argument(format!(
            "snapshot '{id}' needs a session id"
        )));
    }
    if matches!(row.status, SnapshotStatus::Expired | SnapshotStatus::Other(_)) {
        return Err(Error::invalid_argument(format!(
            "'{}' is a status that snapshots are reported with; it is never stored",
            row.status
        )));
    }
    Ok(row)
}

/// Drops the journals of turns that have ended.
///
/// A journal that cannot be dropped is not a failure: nothing reads it any more, and [`Journal::sweep`] drops
/// it when it is old.
pub async fn drop_journals(journal: &dyn Journal, scope: &Scope, keys: &[JournalKey]) {
    for key in keys {
        if let Err(error) = journal.clear(scope, key).await {
            tracing::warn!(%error, "the journal of a turn that has ended was not dropped");
        }
    }
}

/// A value that serves as an agent's store: a store, or a shared one.
pub trait IntoStore {
    /// Converts the value into a shared store.
    fn into_store(self) -> Arc<dyn SessionStore>;
}

impl<T: SessionStore> IntoStore for T {
    fn into_store(self) -> Arc<dyn SessionStore> {
        Arc::new(self)
    }
}

impl<T: SessionStore> IntoStore for Arc<T> {
    fn into_store(self) -> Arc<dyn SessionStore> {
        self
    }
}

impl IntoStore for Arc<dyn SessionStore> {
    fn into_store(self) -> Arc<dyn SessionStore> {
        self
    }
}

/// The greatest length of an id, in bytes: with an ending and a temporary mark it is still a file name.
pub const MAX_ID_BYTES: usize = 200;

/// Checks that every store can keep an id: an id becomes a file name in some of them.
///
/// It has 1 to [`MAX_ID_BYTES`] bytes, no path separator, no control character, no `..` and no leading dot.
/// An agent checks the id of a new session with it before anything runs. `what` names the id in the error.
///
/// # Errors
/// `INVALID_ARGUMENT` with the fault of the id.
pub fn check_id(what: &str, id: &str) -> Result<()> {
    let fault = if id.is_empty() {
        "is empty".to_owned()
    } else if id.len() > MAX_ID_BYTES {
        format!("has {} bytes, and {MAX_ID_BYTES} are allowed", id.len())
    } else if id.contains(['/', '\\']) {
        "contains a path separator".to_owned()
    } else if id.contains("..") {
        "contains '..'".to_owned()
    } else if id.starts_with('.') {
        "starts with a dot".to_owned()
    } else if id.chars().any(|character| character < '\u{20}') {
        "contains a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::invalid_argument(format!("the {what} {fault}; use letters, digits and dashes")).with_public())
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;

    use super::*;

    #[test]
    fn an_id_that_some_store_cannot_keep_is_refused() {
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for id in ["", ".", "..", "a/b", "a\\b", "a..b", ".a", "a\0b", "a\nb", &long] {
            let error = check_id("session id", id).unwrap_err();

            assert_eq!(error.status(), Status::InvalidArgument, "{id:?}");
        }
    }

    #[test]
    fn ids_of_any_script_are_kept() {
        for id in ["a", "7f0c", "küche 1", "スープ", "a.b", "user@example.org|42"] {
            assert!(check_id("session id", id).is_ok(), "{id:?}");
        }
    }
}
