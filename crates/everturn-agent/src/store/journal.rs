//! The capability to keep what happened in turns that are not over.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Error, Reason, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::Scope;
use crate::{SessionId, Snapshot, SnapshotId};

/// Somebody else has written the record of that number.
pub const RECORD_TAKEN: Reason = Reason::new("journal-record-taken");

/// Which turn a journal is about. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JournalKey {
    session: SessionId,
    turn: Arc<str>,
}

impl JournalKey {
    /// The journal of a turn of a session. `turn` is fit for a file name: letters, digits and dashes.
    pub fn new(session: SessionId, turn: impl Into<Arc<str>>) -> Self {
        Self {
            session,
            turn: turn.into(),
        }
    }

    /// Whose turn it is. The session may have no row yet.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Which turn of the session.
    pub fn turn(&self) -> &str {
        &self.turn
    }
}

/// One record of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalRecord {
    /// Its number in the journal, from zero.
    pub sequence: u64,
    /// What it says.
    pub body: Value,
}

/// Judges from the row reserved for a turn, without its state, and the id of the session's latest row.
type Judge = dyn Fn(Option<&Snapshot>, Option<&SnapshotId>) -> Result<()> + Send + Sync;

/// What must be true of a session at the moment a record is written, so that a worker whose turn is over, or is another's,
/// writes nothing more. Cloning is cheap.
#[derive(Clone)]
pub struct JournalGuard {
    row: SnapshotId,
    judge: Arc<Judge>,
}

impl JournalGuard {
    /// A guard that looks at `row`, the one reserved for the turn, and at the session's latest row.
    ///
    /// `judge` is called while the store writes, possibly more than once: it must be quick and change nothing.
    pub fn new(
        row: SnapshotId,
        judge: impl Fn(Option<&Snapshot>, Option<&SnapshotId>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            row,
            judge: Arc::new(judge),
        }
    }

    /// The row to look at. The guard is given what of it [`Detail::Metadata`](super::Detail::Metadata) reads.
    pub fn row(&self) -> &SnapshotId {
        &self.row
    }

    /// Whether a record may be written.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, row: Option<&Snapshot>, latest: Option<&SnapshotId>) -> Result<()> {
        (self.judge)(row, latest)
    }
}

impl fmt::Debug for JournalGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JournalGuard").field(&self.row).finish()
    }
}

/// Keeps journals: what happened in a turn before the turn is a row.
///
/// # What it guarantees
///
/// - **A number is written once.** Of several appends of one number, in any process, one succeeds and the others fail
///   with `ABORTED` and [`RECORD_TAKEN`]; the record stays as it was written. Whoever loses a number has lost the turn to
///   another worker: this is what keeps a worker that was only asleep from acting.
/// - **Guards inside the write.** A [`JournalGuard`] is checked in the same step as the record is written.
/// - **Whole or not at all.** A record is read as it was written, or it is not there.
/// - **Durable when `append` returns**, at the store's level of durability; every later read in any process sees it.
/// - **Tenants are apart**, and a session's journals are deleted with the session.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Writes a record, if there is none of its number and the guard allows it.
    ///
    /// # Errors
    /// What the guard fails with; `ABORTED` with [`RECORD_TAKEN`] if there is one; what the store fails with.
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()>;

    /// Every record of a journal, in the order of their numbers; none if there is no such journal.
    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>>;

    /// Drops a journal. One that is not there is no error.
    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()>;

    /// Drops the journals, of all tenants, to which nothing was added since `before`, and says how many there were.
    ///
    /// These are of turns that failed and were never tried again. It is called now and then by agents that journal.
    async fn sweep(&self, before: Timestamp) -> Result<u64>;
}

/// The error of a number that is taken.
pub fn record_taken(key: &JournalKey, sequence: u64) -> Error {
    Error::aborted(format!(
        "record {sequence} of a turn of session '{}' is written already: another worker has the turn",
        key.session
    ))
    .with_reason(RECORD_TAKEN)
}
