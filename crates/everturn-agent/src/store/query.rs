//! Asking a store what it has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Detail;
pub use crate::snapshot::Cursor;
use crate::{SessionId, Snapshot, SnapshotId};

/// How many rows a page has unless the caller says otherwise.
pub const DEFAULT_PAGE: usize = 100;

/// How many rows a page has at most.
pub const MAX_PAGE: usize = 1_000;

/// Which way a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The latest first.
    #[default]
    Newest,
    /// The earliest first.
    Oldest,
}

/// Asks for the snapshots of a session, in the order of [`Snapshot::position`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotQuery {
    /// Whose snapshots.
    pub session: SessionId,
    /// Which way.
    pub order: Order,
    /// Whether to include snapshots that a rewind left behind.
    pub orphaned: bool,
    /// How much of each.
    pub detail: Detail,
    /// How many at most; more than [`MAX_PAGE`] is as good as that.
    pub limit: usize,
    /// Where the page before this one ended.
    pub after: Option<Cursor>,
}

impl SnapshotQuery {
    /// The first page of a session's snapshots without their states, newest first, orphaned ones left out.
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

    /// The same, the earliest first.
    pub fn oldest_first(mut self) -> Self {
        self.order = Order::Oldest;
        self
    }

    /// The same, with snapshots that a rewind left behind.
    pub fn with_orphaned(mut self) -> Self {
        self.orphaned = true;
        self
    }

    /// The same, with the states.
    pub fn whole(mut self) -> Self {
        self.detail = Detail::Whole;
        self
    }

    /// The same, with at most so many rows in a page.
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// The same, going on where a page ended.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// The number of rows this query asks for.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }
}

/// Asks for the sessions of a tenant, by their latest snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionQuery {
    /// Which way.
    pub order: Order,
    /// How many at most; more than [`MAX_PAGE`] is as good as that.
    pub limit: usize,
    /// Where the page before this one ended.
    pub after: Option<Cursor>,
}

impl SessionQuery {
    /// The number of sessions this query asks for.
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

/// Part of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T, C = Cursor> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<C>,
}

/// A session in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// Which session.
    pub session_id: SessionId,
    /// Its latest snapshot, without the state.
    pub latest: Snapshot,
}

/// What to delete for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// These rows; children of a deleted row keep their own state and lose their parent.
    Snapshots(Vec<SnapshotId>),
    /// All rows of a session.
    Session(SessionId),
}
