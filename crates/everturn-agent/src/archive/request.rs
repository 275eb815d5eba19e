//! Requests to an agent's companion actions, and their answers.
//!
//! Requests are strict: an unknown field is an error, so that a misspelt one is not silently dropped.

use everturn_core::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::named_session;
use crate::store::{Cursor, Detail, Order, Page, SnapshotQuery};
use crate::{SessionId, Snapshot};

/// A request for one page of a session's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSnapshotsRequest {
    /// The session's id.
    pub session_id: SessionId,
    /// The sort order; by default the newest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Whether to include orphaned snapshots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orphaned: bool,
    /// Whether to include the states.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The number of snapshots on a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The end of the page before this one: its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

impl ListSnapshotsRequest {
    /// Creates a request for the first page of a session's snapshots, newest first, without states and orphaned
    /// snapshots.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotList {
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
    /// The end of this page, to pass as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

impl From<Page<Snapshot>> for SnapshotList {
    fn from(page: Page<Snapshot>) -> Self {
        Self {
            snapshots: page.items,
            next: page.next,
        }
    }
}

impl From<SnapshotList> for Page<Snapshot> {
    fn from(list: SnapshotList) -> Self {
        Self {
            items: list.snapshots,
            next: list.next,
        }
    }
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
