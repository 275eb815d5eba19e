//! Queries of a store, and their pages.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Detail, Scope};
pub use crate::storage::snapshot::Cursor;
use crate::{SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// The number of items on a page, by default.
pub const DEFAULT_PAGE: usize = 100;

/// The greatest number of items on a page.
pub const MAX_PAGE: usize = 1_000;

/// The sort order of a listing.
///
/// On the wire `descending` is another word for `newest`, and `ascending` for `oldest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The latest first.
    #[default]
    #[serde(alias = "descending")]
    Newest,
    /// The earliest first.
    #[serde(alias = "ascending")]
    Oldest,
}

impl JsonSchema for Order {
    fn schema_name() -> Cow<'static, str> {
        "Order".into()
    }

    // The derived schema would not have the aliases.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The sort order of a listing.",
            "enum": ["newest", "oldest", "descending", "ascending"],
        })
    }
}

/// A query for the snapshots of a session, in the order of [`Snapshot::position`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotQuery {
    /// The session.
    pub session: SessionId,
    /// The sort order.
    pub order: Order,
    /// Whether to include superseded snapshots.
    pub orphaned: bool,
    /// How much of each snapshot to read.
    pub detail: Detail,
    /// The number of items on a page; more than [`MAX_PAGE`] counts as that.
    pub limit: usize,
    /// The end of the page before this one.
    pub after: Option<Cursor>,
}

impl SnapshotQuery {
    /// Creates a query for the first page of a session's snapshots, newest first, without states and
    /// superseded snapshots.
    pub fn of(session: SessionId) -> Self {
        Self {
            session,
            order: Order::Newest,
            orphaned: false,
            detail: Detail::Metadata,
            limit: DEFAULT_PAGE,
            after: None,
        }
    }

    everturn_core::setters! {
        /// Sorts the earliest first.
        pub fn oldest_first(mut self) { self.order = Order::Oldest }

        /// Includes superseded snapshots.
        pub fn with_orphaned(mut self) { self.orphaned = true }

        /// Reads whole snapshots, with their states.
        pub fn whole(mut self) { self.detail = Detail::Whole }

        /// Sets the number of items on a page.
        pub fn limit(mut self, limit: usize) { self.limit = limit }

        /// Continues after the end of a page.
        pub fn after(mut self, cursor: Cursor) { self.after = Some(cursor) }
    }

    /// Returns the number of snapshots on a page of this query.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }
}

/// A query for the sessions of a tenant, ordered by their latest snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionQuery {
    /// The sort order.
    pub order: Order,
    /// The number of items on a page; more than [`MAX_PAGE`] counts as that.
    pub limit: usize,
    /// The end of the page before this one.
    pub after: Option<Cursor>,
}

impl SessionQuery {
    /// Returns the number of sessions on a page of this query.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self {
            order: Order::Newest,
            limit: DEFAULT_PAGE,
            after: None,
        }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T, C = Cursor> {
    /// The items of the page.
    pub items: Vec<T>,
    /// The end of this page, to pass as `after`; `None` on the last page.
    pub next: Option<C>,
}

/// A session in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// The session's id.
    pub session_id: SessionId,
    /// The session's latest snapshot, without its state.
    pub latest: Snapshot,
}

/// The snapshots to delete permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// These snapshots; children of a deleted snapshot keep their own state and lose their parent.
    Snapshots(Vec<SnapshotId>),
    /// All snapshots of a session, and its journals.
    Session(SessionId),
    /// All snapshots and journals of the tenant.
    Tenant,
}

/// A query for the snapshots of unfinished background runs of all tenants, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingQuery {
    /// Only runs whose last heartbeat is older than this. Snapshots without any heartbeat are then left out.
    pub silent_since: Option<Timestamp>,
    /// The number of runs on a page; more than [`MAX_PAGE`] counts as that.
    pub limit: usize,
    /// The end of the page before this one.
    pub after: Option<PendingCursor>,
}

impl PendingQuery {
    /// Creates a query for the first page of the runs whose last heartbeat is older than a moment.
    pub fn silent_since(moment: Timestamp) -> Self {
        Self {
            silent_since: Some(moment),
            ..Self::default()
        }
    }

    /// Returns the number of snapshots on a page of this query.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }

    /// Returns whether the query selects a snapshot, wherever the page begins.
    pub fn wants(&self, snapshot: &Snapshot) -> bool {
        snapshot.status == SnapshotStatus::Pending
            && self
                .silent_since
                .is_none_or(|moment| snapshot.heartbeat_at.is_some_and(|beat| beat < moment))
    }
}

impl Default for PendingQuery {
    fn default() -> Self {
        Self {
            silent_since: None,
            limit: DEFAULT_PAGE,
            after: None,
        }
    }
}

/// An unfinished background run.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingRun {
    /// The tenant whose run it is.
    pub scope: Scope,
    /// The run's snapshot, without its state.
    pub snapshot: Snapshot,
}

impl PendingRun {
    /// Returns the position of the run in the listing.
    pub fn cursor(&self) -> PendingCursor {
        PendingCursor {
            created_at: self.snapshot.created_at,
            snapshot_id: self.snapshot.snapshot_id.clone(),
            scope: self.scope.clone(),
        }
    }
}

/// A position among the background runs of all tenants: by creation time, then by id, then by tenant in an
/// order of the store's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingCursor {
    /// When the snapshot was created.
    pub created_at: Timestamp,
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// The tenant.
    pub scope: Scope,
}

/// One page of the unfinished background runs.
pub type PendingPage = Page<PendingRun, PendingCursor>;

impl PendingPage {
    /// Cuts the page that answers a query from runs in any order, for stores that have them all available.
    pub fn cut(query: &PendingQuery, runs: impl IntoIterator<Item = PendingRun>) -> Self {
        let beyond = |run: &PendingRun| query.after.as_ref().is_none_or(|after| run.cursor() > *after);
        let mut items: Vec<PendingRun> = runs
            .into_iter()
            .filter(|run| query.wants(&run.snapshot) && beyond(run))
            .collect();
        items.sort_by_cached_key(PendingRun::cursor);
        let more = items.len() > query.page_size();
        items.truncate(query.page_size());
        let next = items.last().filter(|_| more).map(PendingRun::cursor);
        Self { items, next }
    }
}
