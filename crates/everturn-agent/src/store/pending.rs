//! Asking a store which background runs are under way.

use jiff::Timestamp;

use super::{DEFAULT_PAGE, MAX_PAGE, Page, Scope};
use crate::{Snapshot, SnapshotId, SnapshotStatus};

/// Asks for the rows of background runs that are not over, of all tenants, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingQuery {
    /// Only runs whose last sign of life is older than this. Rows that never gave one are then left out.
    pub silent_since: Option<Timestamp>,
    /// How many at most; more than [`MAX_PAGE`] is as good as that.
    pub limit: usize,
    /// Where the page before this one ended.
    pub after: Option<PendingCursor>,
}

impl PendingQuery {
    /// The first page of the runs that have been silent since before a moment.
    pub fn silent_since(moment: Timestamp) -> Self {
        Self {
            silent_since: Some(moment),
            ..Self::default()
        }
    }

    /// The number of rows this query asks for.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }

    /// Whether a row is one of those asked for, wherever the page begins.
    pub fn wants(&self, row: &Snapshot) -> bool {
        row.status == SnapshotStatus::Pending
            && self
                .silent_since
                .is_none_or(|moment| row.heartbeat_at.is_some_and(|beat| beat < moment))
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

/// A background run as a store knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingRun {
    /// Whose run it is.
    pub scope: Scope,
    /// The run's row, without its state.
    pub row: Snapshot,
}

impl PendingRun {
    /// The place of the run in the listing.
    pub fn cursor(&self) -> PendingCursor {
        PendingCursor {
            created_at: self.row.created_at,
            snapshot_id: self.row.snapshot_id.clone(),
            scope: self.scope.clone(),
        }
    }
}

/// A place among the background runs of all tenants: by creation, then by id, then by tenant in an order that is the
/// store's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingCursor {
    /// When the row was created.
    pub created_at: Timestamp,
    /// The row.
    pub snapshot_id: SnapshotId,
    /// The tenant.
    pub scope: Scope,
}

/// Part of the background runs that are under way.
pub type PendingPage = Page<PendingRun, PendingCursor>;

impl PendingPage {
    /// The page that answers a query, cut from runs that come in any order, for stores that have them all at hand.
    pub fn cut(query: &PendingQuery, runs: impl IntoIterator<Item = PendingRun>) -> Self {
        let beyond = |run: &PendingRun| query.after.as_ref().is_none_or(|after| run.cursor() > *after);
        let mut items: Vec<PendingRun> = runs
            .into_iter()
            .filter(|run| query.wants(&run.row) && beyond(run))
            .collect();
        items.sort_by_cached_key(PendingRun::cursor);
        let more = items.len() > query.page_size();
        items.truncate(query.page_size());
        let next = items.last().filter(|_| more).map(PendingRun::cursor);
        Self { items, next }
    }
}
