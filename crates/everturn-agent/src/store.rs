//! Where conversations are kept.
//!
//! # What a store guarantees
//!
//! - **Atomic read-modify-write.** [`SessionStore::commit`] reads the row, computes the new one and writes it as one step:
//!   commits of one session behave as if they ran one after the other (they are *serializable*), in every process that
//!   shares the store. A commit that fails has written nothing.
//! - **Preconditions inside the commit.** A [`Precondition`] is checked in the same step as the write: of any number of
//!   saves that expect the same tip, one succeeds.
//! - **Whole rows.** A reader sees a row as it was before or after a save, never a part of one and never one that was not
//!   saved. A page of a list may mix moments; a row that was there all along is on exactly one page.
//! - **Read your writes, and everybody else's.** Once `save` has returned, every later read in any process sees the row or a
//!   newer one, and the session's latest is that row or a later one: reads and saves are *linearizable*.
//! - **What a rewind left behind is not the tip.** Rows marked [`orphaned`](Snapshot::orphaned) are never a session's
//!   latest, be it asked for, checked by a precondition, or listed; unmarked, they are again.
//! - **Terminal rows never change status.** A save that would change the status of a completed, failed or aborted row
//!   fails with `FAILED_PRECONDITION`; one that would move a row to another session fails likewise.
//! - **Tenants are apart.** A row written under one [`Scope`] cannot be reached under another by any id.
//! - **Every field survives**, those of other versions ([`Snapshot::extra`]) and those that the framework notes for itself
//!   ([`Snapshot::bookkeeping`]) included.
//! - **Pending rows are found.** A store that can list them ([`SessionStore::pending`]) leaves out none of those that were
//!   acknowledged, whatever happened to the process that wrote them.
//! - **Journals**, where a store keeps them ([`SessionStore::journal`]), are as [`Journal`] says.
//! - **Level-triggered watching.** A watcher hears the current status first and the last one in the end, whoever wrote it;
//!   those in between may be left out.
//! - **Durability** is each store's own promise, stated in its documentation: what survives the death of the process, and
//!   what a loss of power, at which level.
//!
//! | store | a save that has returned survives |
//! |---|---|
//! | [`MemoryStore`] | as long as the process |
//! | `everturn-file` | the death of the process and a loss of power |
//! | `everturn-sqlite`, `Durability::Full` | the death of the process and a loss of power |
//! | `everturn-sqlite`, `Durability::Normal` | the death of the process; a loss of power may take the last moments, in whole saves |
//!
//! `everturn-testkit` certifies these promises for any store.
//!
//! # What a store may leave out
//!
//! Every method is required, so that a store around another store cannot forget one. A store that cannot do what the
//! following ask for gives the answer on the right, and agents do without.
//!
//! | method | answer of a store that cannot | what agents then lack |
//! |---|---|---|
//! | [`SessionStore::journal`] | `None` | a turn that is taken up again begins anew |
//! | [`SessionStore::watch`], [`SessionStore::can_watch`] | `None`, `false` | background runs |
//! | [`SessionStore::pending`] | `Ok(None)` | takeover of lost background runs |
//!
//! A store owns the ids it is not given and keeps the session id of an existing row; times and status belong to the
//! caller and are stored as they come.

mod into_store;
mod journal;
mod memory;
mod pending;
mod query;

use std::fmt;

use async_trait::async_trait;
use everturn_core::{Error, Reason, Result};
use futures::stream::BoxStream;

pub use self::into_store::IntoStore;
pub use self::journal::{
    Journal, JournalGuard, JournalKey, JournalRecord, RECORD_TAKEN, TURN_TAKEN_OVER, record_taken,
};
pub use self::memory::MemoryStore;
pub use self::pending::{PendingCursor, PendingPage, PendingQuery, PendingRun};
pub use self::query::{
    Cursor, DEFAULT_PAGE, Deletion, MAX_PAGE, Order, Page, SessionQuery, SessionSummary, SnapshotQuery,
};
pub use crate::scope::Scope;
pub use crate::snapshot::{Bookkeeping, Lease, Mutation};
use crate::{SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// The session's tip is no longer where a turn started: another turn was faster.
pub const TIP_MOVED: Reason = Reason::new("session-tip-moved");

/// The statuses a row goes through, the current one first; see [`SessionStore::watch`].
pub type StatusStream = BoxStream<'static, SnapshotStatus>;

/// What must be true at the moment of the write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// The [latest](SessionStore::latest) snapshot of the row's session is this one, or there is none yet, whether the row
    /// is new or rewritten; otherwise the save fails with `ABORTED` and [`TIP_MOVED`].
    Tip(Option<SnapshotId>),
}

impl Precondition {
    /// Checks it, for a store that holds still meanwhile and knows the session's latest row.
    ///
    /// # Errors
    /// `ABORTED` with [`TIP_MOVED`] if it does not hold.
    pub fn check(&self, session: &SessionId, latest: Option<&SnapshotId>) -> Result<()> {
        match self {
            Self::Tip(expected) if expected.as_ref() != latest => {
                Err(tip_moved(session, expected.as_ref(), latest))
            }
            _ => Ok(()),
        }
    }
}

/// How much of a snapshot to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The row with its state.
    #[default]
    Whole,
    /// The row without its state: cheap, whatever the conversation's length.
    Metadata,
}

impl Detail {
    /// The part of a row that was asked for, for stores that have the whole row at hand.
    pub fn cut(self, mut row: Snapshot) -> Snapshot {
        if self == Self::Metadata {
            row.state = None;
        }
        row
    }
}

/// A place that keeps snapshots. Small and object-safe; what it must guarantee is in the [module](self)'s text.
#[async_trait]
pub trait SessionStore: fmt::Debug + Send + Sync + 'static {
    /// The row of that id, if there is one.
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>>;

    /// The session's row with the greatest creation time, of any status, ties broken by the greatest id. Orphaned rows are
    /// passed over.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the session id is empty.
    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>>;

    /// Reads the snapshot, applies `mutation`, writes the snapshot that it returns and drops the `journals` of the turns
    /// that this snapshot holds. `None` as the id makes a new one.
    ///
    /// Reading and writing are one step. Journals are dropped only if the snapshot was written: in the same step if the
    /// store can, else right after, for instance with [`drop_journals`].
    ///
    /// Returns the snapshot as written, or `None` if the mutation wrote nothing.
    ///
    /// # Errors
    /// The mutation's own error; `INVALID_ARGUMENT` for a snapshot without a session id or an id the store cannot keep;
    /// `ABORTED` with [`TIP_MOVED`] if the precondition does not hold; `FAILED_PRECONDITION` for a change of the status of
    /// a snapshot that is over, or of a snapshot's session.
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

    /// One page of a session's snapshots.
    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>>;

    /// One page of the tenant's sessions, ordered by their latest snapshots. A session that has only orphaned rows is not
    /// listed.
    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>>;

    /// The rows that name this one as their parent, without their states, oldest first.
    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>>;

    /// Deletes rows for good and says how many there were. What is not there is no error.
    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64>;

    /// Returns one page of the background runs of all tenants that are not over: snapshots that are `pending`, oldest
    /// first, without their states. It costs what is pending, not what is stored.
    ///
    /// Workers find runs to take over by this. It is for the operator of the store, not for its tenants.
    ///
    /// A store that cannot find them answers `Ok(None)`; no run is then taken over.
    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>>;

    /// Returns where the store keeps journals.
    ///
    /// A store that keeps none answers `None`; a turn that is taken up again then begins anew.
    fn journal(&self) -> Option<&dyn Journal>;

    /// Returns the statuses of a snapshot: the current one at once, then every later one or, if they come faster than they
    /// are read, at least the last. The stream of a snapshot that does not exist is over at once.
    ///
    /// A store that cannot tell answers `None`, and `false` to [`SessionStore::can_watch`]; its agents have no background
    /// runs.
    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream>;

    /// Whether [`SessionStore::watch`] works.
    fn can_watch(&self) -> bool;
}

/// The id a row is saved under: the one that is asked for, or a new one. An empty id is as good as none.
pub fn id_to_save(asked: Option<&SnapshotId>) -> SnapshotId {
    asked
        .cloned()
        .and_then(SnapshotId::given)
        .unwrap_or_else(SnapshotId::fresh)
}

/// The rules every store applies to a row before it is written, given the row that is there.
///
/// Sets the id, keeps the session id of an existing row, and refuses what no row may become.
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
        if existing.session_id.is_some() {
            row.session_id.clone_from(&existing.session_id);
        }
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
    if row.status == SnapshotStatus::Expired {
        return Err(Error::invalid_argument(
            "'expired' is how a pending row is reported; it is never stored",
        ));
    }
    Ok(row)
}

/// Drops the journals of turns that are over.
///
/// A journal that cannot be dropped is no failure: nothing reads it any more, and [`Journal::sweep`] drops it when it is
/// old.
pub async fn drop_journals(journal: &dyn Journal, scope: &Scope, keys: &[JournalKey]) {
    for key in keys {
        if let Err(error) = journal.clear(scope, key).await {
            tracing::warn!(%error, "the journal of a turn that is over was not dropped");
        }
    }
}

/// The error of a precondition that does not hold.
pub(crate) fn tip_moved(
    session: &SessionId,
    expected: Option<&SnapshotId>,
    found: Option<&SnapshotId>,
) -> Error {
    let place =
        |id: Option<&SnapshotId>| id.map_or_else(|| "its beginning".to_owned(), |id| format!("'{id}'"));
    Error::aborted(format!(
        "session '{session}' has moved on: this turn started at {}, the latest is now {}; resume from there and retry",
        place(expected),
        place(found),
    ))
    .with_reason(TIP_MOVED)
    .with_public()
}
