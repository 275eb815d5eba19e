//! Queries for unfinished background runs.

use jiff::Timestamp;

use super::{DEFAULT_PAGE, MAX_PAGE, Page, Scope};
use crate::{Snapshot, SnapshotId, SnapshotStatus};

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
