//! Journals: the effects of unfinished turns.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_ai::metadata::is_outcome_unknown;
use everturn_ai::{EffectId, ToolOutcome, ToolRequest};
use everturn_core::{Error, Reason, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{DEFAULT_PAGE, MAX_PAGE, Page, Precondition, Scope};
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

/// A query for the journals of unfinished turns, of all tenants unless it names one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalQuery {
    /// Only journals of this tenant.
    pub scope: Option<Scope>,
    /// Only journals of this session of the tenant.
    pub session: Option<SessionId>,
    /// Only journals to which something was added at this moment or later.
    pub since: Option<Timestamp>,
    /// Only journals to which nothing was added at this moment or later.
    pub before: Option<Timestamp>,
    /// The number of journals on a page; more than [`MAX_PAGE`] counts as that.
    pub limit: usize,
    /// The end of the page before this one.
    pub after: Option<JournalCursor>,
}

/// A position among the journals of all tenants.
pub type JournalCursor = (Scope, JournalKey);

/// One page of the journals of unfinished turns.
pub type JournalPage = Page<UnfinishedTurn, JournalCursor>;

impl Default for JournalQuery {
    fn default() -> Self {
        Self {
            scope: None,
            session: None,
            since: None,
            before: None,
            limit: DEFAULT_PAGE,
            after: None,
        }
    }
}

impl JournalQuery {
    /// Creates a query for the first page of a tenant's journals.
    pub fn of_tenant(scope: Scope) -> Self {
        Self {
            scope: Some(scope),
            ..Self::default()
        }
    }

    /// Creates a query for the first page of a session's journals.
    pub fn of_session(scope: Scope, session: SessionId) -> Self {
        Self {
            session: Some(session),
            ..Self::of_tenant(scope)
        }
    }

    /// Leaves out journals to which something was added at this moment or later.
    #[must_use]
    pub fn before(self, moment: Timestamp) -> Self {
        Self {
            before: Some(moment),
            ..self
        }
    }

    /// Returns the number of journals on a page of this query.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }

    /// Returns whether the query selects a journal with a last record of that age, wherever the page begins.
    pub fn wants(&self, scope: &Scope, key: &JournalKey, added_at: Timestamp) -> bool {
        let is_of_place = self.scope.as_ref().is_none_or(|own| own == scope)
            && self.session.as_ref().is_none_or(|own| own == key.session());
        let is_of_time = self.since.is_none_or(|since| added_at >= since)
            && self.before.is_none_or(|before| added_at < before);
        is_of_place && is_of_time && !key.is_kept()
    }

    /// Cuts the page that answers the query from journals in any order, for stores that have the rest of them
    /// available.
    pub fn page(&self, turns: impl IntoIterator<Item = UnfinishedTurn>) -> JournalPage {
        let cursor = |turn: &UnfinishedTurn| (turn.scope.clone(), turn.key.clone());
        let beyond = |turn: &UnfinishedTurn| self.after.as_ref().is_none_or(|after| cursor(turn) > *after);
        let mut items: Vec<_> = turns.into_iter().filter(beyond).collect();
        items.sort_by_cached_key(cursor);
        self.cut(items)
    }

    /// Cuts the page from journals in order, of which there is one more than the page has if it is not the
    /// last.
    pub fn cut(&self, mut items: Vec<UnfinishedTurn>) -> JournalPage {
        let more = items.len() > self.page_size();
        items.truncate(self.page_size());
        let last = items.last().filter(|_| more);
        let next = last.map(|turn| (turn.scope.clone(), turn.key.clone()));
        Page { items, next }
    }
}

/// The journal of a turn that has not been committed: the turn is in progress, failed, or died.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedTurn {
    /// The tenant whose turn it is.
    pub scope: Scope,
    /// The journal's name.
    pub key: JournalKey,
    /// The moment at which the last record was added.
    pub added_at: Timestamp,
    /// The records, in the order of their numbers.
    pub records: Vec<JournalRecord>,
}

impl UnfinishedTurn {
    /// Returns the calls that began, whose outcome is unknown and which no other turn has taken over, in the
    /// order in which they began.
    pub(crate) fn unknown_outcomes(&self) -> Vec<(EffectId, BegunCall)> {
        unknown_outcomes(&self.records)
    }
}

/// Returns whether a journal holds a call that began, whose outcome is unknown and which no other turn has
/// taken over. [`Journal::sweep`] keeps such a journal.
pub fn has_unknown_outcome(records: &[JournalRecord]) -> bool {
    !unknown_outcomes(records).is_empty()
}

/// The beginning of a call that must not be made twice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BegunCall {
    /// The agent whose turn it is.
    pub(crate) agent: String,
    /// The name of the tool, or of the turn's own effect.
    pub(crate) name: String,
    /// The tool request; `None` for an effect of the turn's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<ToolRequest>,
    pub(crate) began_at: Timestamp,
    /// The snapshot that is reserved for the turn.
    pub(crate) snapshot: SnapshotId,
}

/// The entries of a record that decide which outcomes are unknown.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Noted {
    Started {
        effect: EffectId,
        begun: Option<Box<BegunCall>>,
    },
    Ended {
        effect: EffectId,
        outcome: ToolOutcome,
    },
    Failed {
        effect: EffectId,
    },
    Adopted {
        effects: Vec<EffectId>,
    },
    #[serde(other)]
    Other,
}

fn unknown_outcomes(records: &[JournalRecord]) -> Vec<(EffectId, BegunCall)> {
    let mut unknown: Vec<(EffectId, BegunCall)> = Vec::new();
    let entries = records
        .iter()
        .filter_map(|record| record.body.get("entries")?.as_array());
    // An entry that cannot be read is none that began a call.
    for noted in entries
        .flatten()
        .filter_map(|entry| Noted::deserialize(entry).ok())
    {
        match noted {
            Noted::Started {
                effect,
                begun: Some(begun),
            } => unknown.push((effect, *begun)),
            Noted::Ended {
                outcome: ToolOutcome::Interrupted(data),
                ..
            } if is_outcome_unknown(&data) => {}
            Noted::Ended { effect, .. } | Noted::Failed { effect } => {
                unknown.retain(|(known, _)| *known != effect);
            }
            Noted::Adopted { effects } => unknown.retain(|(known, _)| !effects.contains(known)),
            Noted::Started { .. } | Noted::Other => {}
        }
    }
    unknown
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

    /// Returns one page of the journals of unfinished turns, with their records, by tenant, session and name
    /// in an order of the store's own. Journals that are [kept](JournalKey::is_kept) are not listed.
    ///
    /// Agents and operators find calls by this that began and whose outcome is unknown. Without a tenant in
    /// the query, it is for the operator of the store.
    async fn unfinished(&self, query: &JournalQuery) -> Result<JournalPage>;

    /// Drops the journals, of all tenants, to which nothing was added since `before`, and returns their
    /// number. Journals that are [kept](JournalKey::is_kept) stay: their names begin with [`KEPT`]. Journals
    /// [with an unknown outcome](has_unknown_outcome) stay, too, until a turn determines it.
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
