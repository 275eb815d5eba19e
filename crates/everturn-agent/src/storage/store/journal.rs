//! Journals: the effects of unfinished turns.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Error, Reason, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::{Precondition, Scope};
use crate::storage::snapshot::Lease;
use crate::{SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// The reason of an append that failed because another worker has written the record of that number.
pub const RECORD_TAKEN: Reason = Reason::new("journal-record-taken");

/// The reason for which a worker stopped before its next action: another worker has taken the turn up.
pub const TURN_TAKEN_OVER: Reason = Reason::new("turn-taken-over");

/// The first letters of the names of journals that are [kept](JournalKey::kept).
pub const KEPT: &str = "kept-";

/// The first letters of the names of the [accounts of branches](JournalKey::of_branch).
const BRANCH: &str = "branch-";

/// The name of a turn's journal. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JournalKey {
    session: SessionId,
    turn: Arc<str>,
}

impl JournalKey {
    /// Names the journal of a turn of a session. `turn` is fit for a file name: letters, digits and dashes.
    pub fn new(session: SessionId, turn: impl Into<Arc<str>>) -> Self {
        Self {
            session,
            turn: turn.into(),
        }
    }

    /// Names a journal that is kept as long as its session: [`Journal::sweep`] leaves it alone. `name` is fit
    /// for a file name: letters, digits and dashes.
    pub fn kept(session: SessionId, name: &str) -> Self {
        Self::new(session, format!("{KEPT}{name}"))
    }

    /// Names the account of a session's branch, which begins with this snapshot; `None` is the session's
    /// first branch. It has no journal.
    pub fn of_branch(session: SessionId, first: Option<&SnapshotId>) -> Self {
        Self::new(
            session,
            format!("{BRANCH}{}", first.map_or("", SnapshotId::as_str)),
        )
    }

    /// Returns whether this is the account of a branch.
    pub fn is_branch(&self) -> bool {
        self.turn.starts_with(BRANCH)
    }

    /// Returns whether the journal is kept as long as its session.
    pub fn is_kept(&self) -> bool {
        self.turn.starts_with(KEPT)
    }

    /// Returns the session of the turn. It may have no snapshot yet.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the turn's name within the session.
    pub fn turn(&self) -> &str {
        &self.turn
    }
}

/// One record of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalRecord {
    /// The record's number in the journal, counted from zero.
    pub sequence: u64,
    /// The record's content.
    pub body: Value,
}

/// The condition under which a record may be written. It stops a worker whose turn has ended or was taken
/// over from writing more records.
///
/// A turn has a snapshot reserved for it, by its id. The turn may act for as long as it could still write
/// that snapshot:
///
/// | the reserved snapshot | a record may be written if |
/// |---|---|
/// | does not exist | the precondition holds |
/// | is pending | its lease is this one, or it has none |
/// | is completed, failed or aborted | never |
///
/// A guard is data, so a store may check it in any way that its atomic step allows; [`JournalGuard::check`]
/// is for stores that have the two snapshots available.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalGuard {
    /// The id of the snapshot that is reserved for the turn.
    pub reserved: SnapshotId,
    /// The lease of this worker on the background run that the turn may be part of.
    pub lease: Lease,
    /// The condition while the reserved snapshot does not exist.
    pub precondition: Precondition,
}

impl JournalGuard {
    /// Creates a guard for a turn with a reserved snapshot.
    pub fn new(reserved: SnapshotId, lease: Lease, precondition: Precondition) -> Self {
        Self {
            reserved,
            lease,
            precondition,
        }
    }

    /// Checks the guard, for a store that holds still meanwhile. `reserved` is the reserved snapshot of the
    /// `session`, if it exists, as [`Detail::Metadata`](super::Detail::Metadata) reads it; `found` is the
    /// snapshot that [`Precondition::check`] requires.
    ///
    /// # Errors
    /// `ABORTED` with [`TURN_TAKEN_OVER`] if the reserved snapshot is not this worker's; as
    /// [`Precondition::check`]; `DATA_LOSS` if the lease of the reserved snapshot cannot be read.
    pub fn check(
        &self,
        session: &SessionId,
        reserved: Option<&Snapshot>,
        found: Option<&SnapshotId>,
    ) -> Result<()> {
        match reserved {
            None => self.precondition.check(session, found),
            Some(run) if run.status == SnapshotStatus::Pending && self.lease.holds(run)? => Ok(()),
            Some(run) => Err(turn_over(run)),
        }
    }
}

/// Creates the error for a record of a turn whose snapshot the worker may no longer write.
fn turn_over(snapshot: &Snapshot) -> Error {
    let id = &snapshot.snapshot_id;
    let message = if snapshot.status == SnapshotStatus::Pending {
        format!("the turn is another worker's: it holds the lease of snapshot '{id}'")
    } else {
        format!("the turn has ended: snapshot '{id}' holds its end")
    };
    Error::aborted(message).with_reason(TURN_TAKEN_OVER).with_public()
}

/// Keeps the journals of turns whose snapshots are not written yet.
///
/// # What it guarantees
///
/// - **A number is written once.** Of several appends of one number, in any process, one succeeds and the
///   others fail with `ABORTED` and [`RECORD_TAKEN`]; the record stays as it was written. A worker that loses
///   a number has lost the turn to another worker: this keeps a worker that was only asleep from acting.
/// - **Guards inside the write.** A [`JournalGuard`] is checked in the same step as the record is written.
/// - **Whole or not at all.** A record is read as it was written, or it does not exist.
/// - **Durable when `append` returns**, at the store's level of durability; every later read in any process
///   sees it.
/// - **Tenants are apart**, and a session's journals are deleted with the session.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Writes a record, if none has its number and the guard allows it.
    ///
    /// # Errors
    /// As [`JournalGuard::check`]; `ABORTED` with [`RECORD_TAKEN`] if the number is taken; the store's own
    /// errors.
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()>;

    /// Reads every record of a journal, in the order of their numbers; none if the journal does not exist.
    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>>;

    /// Returns whether it is known, without reading, that a session has no journal. The default returns
    /// nothing.
    fn is_known_empty(&self, scope: &Scope, session: &SessionId) -> bool {
        let _ = (scope, session);
        false
    }

    /// Drops a journal. A missing journal is not an error.
    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()>;

    /// Drops the journals, of all tenants, to which nothing was added since `before`, and returns their
    /// number. Journals that are [kept](JournalKey::is_kept) stay: their names begin with [`KEPT`].
    ///
    /// The others belong to turns that failed and were never retried. Agents with a journal call this now and
    /// then.
    async fn sweep(&self, before: Timestamp) -> Result<u64>;
}

/// Creates the error of an append whose number is taken.
pub fn record_taken(key: &JournalKey, sequence: u64) -> Error {
    Error::aborted(format!(
        "record {sequence} of a turn of session '{}' is written already: another worker has the turn",
        key.session
    ))
    .with_reason(RECORD_TAKEN)
}
