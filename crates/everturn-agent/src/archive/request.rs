//! Requests to an agent's companion actions, and their answers.
//!
//! Requests are strict: an unknown field is an error, so that a misspelt one is not silently dropped.

use std::collections::BTreeMap;

use everturn_ai::Part;
use everturn_core::Result;
use everturn_macros::wire;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::named_session;
use crate::store::{Cursor, Detail, Order, Page, SessionQuery, SessionSummary, SnapshotQuery};
use crate::{SessionId, Snapshot, SnapshotId, UnfinishedCall};

/// A request for one page of a session's snapshots.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListSnapshotsRequest {
    /// The session's id.
    pub session_id: SessionId,
    /// The sort order; by default the newest first.
    pub order: Option<Order>,
    /// Whether to include superseded snapshots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orphaned: bool,
    /// Whether to include the states. A page with large states ends early: after about 8 MiB, or one
    /// snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The greatest number of snapshots on a page.
    pub limit: Option<usize>,
    /// The end of the page before this one: its `next`.
    pub after: Option<Cursor>,
}

impl ListSnapshotsRequest {
    /// Creates a request for the first page of a session's snapshots, newest first, without states and
    /// superseded snapshots.
    pub fn of(session: impl Into<SessionId>) -> Self {
        Self {
            session_id: session.into(),
            order: None,
            orphaned: false,
            whole: false,
            limit: None,
            after: None,
        }
    }

    /// Converts the request to a query.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty session id.
    pub(crate) fn query(self) -> Result<SnapshotQuery> {
        let mut query = SnapshotQuery::of(named_session(self.session_id)?);
        query.order = self.order.unwrap_or_default();
        query.orphaned = self.orphaned;
        if self.whole {
            query = query.whole();
        }
        query.limit = self.limit.unwrap_or(query.limit);
        query.after = self.after;
        Ok(query)
    }
}

impl From<SnapshotQuery> for ListSnapshotsRequest {
    fn from(query: SnapshotQuery) -> Self {
        Self {
            session_id: query.session,
            order: Some(query.order),
            orphaned: query.orphaned,
            whole: query.detail == Detail::Whole,
            limit: Some(query.limit),
            after: query.after,
        }
    }
}

/// One page of a session's snapshots.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotList {
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
    /// The end of this page, to pass as `after`; absent on the last page.
    pub next: Option<Cursor>,
}

everturn_core::conversions! {
    From<Page<Snapshot>> for SnapshotList: |page| Self {
        snapshots: page.items,
        next: page.next,
    };
    From<SnapshotList> for Page<Snapshot>: |list| Self {
        items: list.snapshots,
        next: list.next,
    };
}

/// A request for a session at its tip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetSessionRequest {
    /// The session's id.
    pub session_id: SessionId,
}

/// A session at its tip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// The session's id.
    pub session_id: SessionId,
    /// Its latest snapshot, with the state.
    pub latest: Snapshot,
}

/// Asks for one page of the tenant's sessions, or of its background runs.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListSessionsRequest {
    /// The order of the sessions' latest snapshots; by default the newest first.
    pub order: Option<Order>,
    /// The number of sessions on a page.
    pub limit: Option<usize>,
    /// The end of the page before this one: its `next`.
    pub after: Option<Cursor>,
    /// Whether to list background runs in progress instead, the earliest first: each with its session, and
    /// with its own snapshot as `latest`. It cannot be combined with `order`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// Whether to list only sessions that wait for answers, with their open questions. A page may have fewer
    /// sessions than the limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

impl ListSessionsRequest {
    /// Asks for one page of the background runs that are not over.
    pub fn pending(limit: usize, after: Option<Cursor>) -> Self {
        Self {
            order: None,
            limit: Some(limit),
            after,
            pending: true,
            interrupted: false,
        }
    }

    pub(crate) fn query(self) -> SessionQuery {
        let mut query = SessionQuery::default();
        query.order = self.order.unwrap_or_default();
        query.limit = self.limit.unwrap_or(query.limit);
        query.after = self.after;
        query
    }
}

impl From<SessionQuery> for ListSessionsRequest {
    fn from(query: SessionQuery) -> Self {
        Self {
            order: Some(query.order),
            limit: Some(query.limit),
            after: query.after,
            pending: false,
            interrupted: false,
        }
    }
}

/// One page of the tenant's sessions.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// The sessions.
    pub sessions: Vec<SessionSummary>,
    /// The end of this page, to pass as `after`; absent on the last page.
    pub next: Option<Cursor>,
    /// The questions that wait for answers, if the request is for sessions that wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<OpenQuestion>,
    /// The calls whose turns died or failed before their outcomes were known, if the request is for sessions
    /// that wait: at most 1,000, and only on the first page. The next turn of the session reconciles or asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<UnfinishedCall>,
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenQuestion {
    /// The session that waits.
    pub session_id: SessionId,
    /// The snapshot at which it waits.
    pub snapshot_id: SnapshotId,
    /// Whether the tool was called and it is unknown whether it took effect.
    pub outcome_unknown: bool,
    /// The tool request with its metadata: the question's data as `interrupt`, who may answer it as
    /// `approval`.
    pub request: Part,
}

everturn_core::conversions! {
    From<Page<SessionSummary>> for SessionList: |page| Self {
        sessions: page.items,
        next: page.next,
        questions: Vec::new(),
        unfinished: Vec::new(),
    };
    From<SessionList> for Page<SessionSummary>: |list| Self {
        items: list.sessions,
        next: list.next,
    };
}

/// Asks for one page of a session's tree of snapshots.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeRequest {
    /// The session's id.
    pub session_id: SessionId,
    /// The number of snapshots on a page; by default as many as a page may have.
    pub limit: Option<usize>,
    /// The end of the page before this one: its `next`.
    pub after: Option<Cursor>,
    /// Whether to add the first words of each snapshot's last user message, and the tools that were called
    /// since. A page with first words holds at most 100 snapshots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excerpts: bool,
}

/// One page of a session's tree: its snapshots without their states, oldest first, superseded ones included.
/// Each names the snapshot it continues from as `parentId`.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreePage {
    /// The session's id.
    pub session_id: SessionId,
    /// The id of the snapshot at which the session is resumed.
    pub latest: Option<SnapshotId>,
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
    /// The first words of the last user message and the names of the tools that were called since, by
    /// snapshot, if they were requested.
    pub excerpts: Option<BTreeMap<SnapshotId, String>>,
    /// The end of this page, to pass as `after`; absent on the last page.
    pub next: Option<Cursor>,
}

/// Asks for the difference between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiffRequest {
    /// The one snapshot.
    pub left: SnapshotId,
    /// The other.
    pub right: SnapshotId,
}

/// Asks for a snapshot to be annotated. Each field that is given is applied: a label is taken off, one is put
/// on, the note is replaced.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelRequest {
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// The label to take off.
    pub unlabel: Option<String>,
    /// The label to put on.
    pub label: Option<String>,
    /// The note to write; an empty one takes the note off.
    pub note: Option<String>,
}

impl LabelRequest {
    /// Creates an empty request.
    pub fn of(snapshot: impl Into<SnapshotId>) -> Self {
        Self {
            snapshot_id: snapshot.into(),
            unlabel: None,
            label: None,
            note: None,
        }
    }
}

/// Asks for a new session that begins with the state of a snapshot.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForkRequest {
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// The id of the new session; or, with a custom state, that of the snapshot's own session, in which the
    /// state then follows the snapshot.
    pub session_id: SessionId,
    /// The custom state, if it is not the snapshot's.
    pub custom: Option<Value>,
}

/// Asks for a copy of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CopyRequest {
    /// The session's id.
    pub session_id: SessionId,
    /// The id of the copy.
    pub to: SessionId,
}

/// The outcome of an export.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exported {
    /// The number of snapshots.
    pub snapshots: u64,
    /// The lines of the export, if they were not streamed.
    pub lines: Option<Vec<Value>>,
}

/// Says how a session is imported.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportInit {
    /// The id of the imported session, if it is not the one that it had.
    pub session_id: Option<SessionId>,
    /// Whether to replace a session of that id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// Asks for deletion: of a session, of a snapshot, or of a snapshot and all that came of it.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteRequest {
    /// The session to delete.
    pub session_id: Option<SessionId>,
    /// The snapshot to delete.
    pub snapshot_id: Option<SnapshotId>,
    /// Whether to delete all that came of the snapshot too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub branch: bool,
}

/// The outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// The number of snapshots that are gone.
    pub snapshots: u64,
}

/// Asks for the tenants of an agent's store.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListTenantsRequest {
    /// The last tenant of the page before.
    pub after: Option<String>,
}

/// A page of tenants.
#[wire]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantList {
    /// The tenants, by name.
    pub tenants: Vec<String>,
    /// The readable names of tenants whose names are hashes: the ids of their principals.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub principals: BTreeMap<String, String>,
    /// The tenant to pass as `after` for the next page; missing on the last one.
    pub next: Option<String>,
}

/// Asks for the deletion of everything of a tenant, which is named as it is listed or by the id of its
/// principal.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteTenantRequest {
    /// The tenant's name in the list of tenants.
    pub tenant: Option<String>,
    /// The id of the principal whose tenant is deleted.
    pub principal: Option<String>,
    /// The id of the request: the same request again returns the first outcome.
    pub request_id: Option<String>,
}

/// Asks for rules of retention to be applied to all tenants.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetainRequest {
    /// Snapshots that are older than this many seconds are deleted.
    pub max_age_seconds: Option<u64>,
    /// Only this many of the newest snapshots of each session are kept.
    pub newest: Option<usize>,
    /// Whether labelled snapshots are deleted like all others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_labelled: bool,
}

/// The outcome of applying rules of retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retained {
    /// The number of sessions that the rules were applied to.
    pub sessions: u64,
    /// The number of snapshots that were deleted.
    pub snapshots: u64,
}
