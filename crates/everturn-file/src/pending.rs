//! Finding pending background runs without reading every file.
//!
//! Each pending row has a marker: a small file at `<root>/.pending/`, apart from the rows, that names the
//! row. The marker is on the device before the row and is removed after the row has ended. So a marker may be
//! stale, but no pending row is without one. Stale markers are removed when they are read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Detail, PendingPage, PendingQuery, PendingRun, Scope};
use everturn_agent::{Snapshot, SnapshotId, SnapshotStatus};
use everturn_core::Result;
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::disk::Disk;
use crate::files::Files;
use crate::layout::hashed_name;

/// The content of a marker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Marker {
    scope: String,
    snapshot_id: SnapshotId,
}

fn folder(root: &Path) -> PathBuf {
    root.join(".pending")
}

fn path(root: &Path, scope: &Scope, id: &SnapshotId) -> PathBuf {
    let name = hashed_name([scope.as_str(), id.as_str()]);
    folder(root).join(name + ".json")
}

impl Files {
    /// Marks a row as pending, before it is written.
    pub(crate) fn mark(&self, id: &SnapshotId) -> Result<()> {
        self.disk.create_folder(&folder(&self.root))?;
        let marker = Marker {
            scope: self.scope.as_str().to_owned(),
            snapshot_id: id.clone(),
        };
        self.put(&path(&self.root, &self.scope, id), &marker)
    }

    /// Removes the marker of a row that has ended. A marker that stays is recognised as stale later.
    pub(crate) fn unmark(&self, id: &SnapshotId) {
        let _ = self.disk.remove(&path(&self.root, &self.scope, id));
    }

    /// Returns whether a row has a marker.
    pub(crate) fn is_marked(&self, id: &SnapshotId) -> Result<bool> {
        Ok(self.disk.read(&path(&self.root, &self.scope, id))?.is_some())
    }

    /// Removes a marker if its row is not pending. Needs the lock, so that no save of the row is in progress;
    /// if the lock is not free, the marker is left for the next reader.
    pub(crate) fn unmark_stale(&self, id: &SnapshotId) -> Result<()> {
        let Some(_lock) = self.lock_if_free()? else {
            return Ok(());
        };
        let pending = self
            .header(id)?
            .is_some_and(|row| row.status == SnapshotStatus::Pending);
        if !pending {
            self.unmark(id);
        }
        Ok(())
    }
}

/// Returns whether a save must create the row's marker, and whether it must remove it.
pub(crate) fn changes(before: Option<&Snapshot>, after: &Snapshot) -> (bool, bool) {
    let pending = |row: &Snapshot| row.status == SnapshotStatus::Pending;
    let (was, is) = (before.is_some_and(pending), pending(after));
    (is && !was, was && !is)
}

/// Reads the markers of all scopes. A file that is not a marker is skipped.
pub(crate) fn read_markers(
    markers: &Cache<Marker>,
    disk: &dyn Disk,
    root: &Path,
) -> io::Result<Vec<Arc<Marker>>> {
    let parse = |_: &Path, content: &[u8]| serde_json::from_slice(content).ok();
    markers.read_all(disk, &folder(root), |_| true, parse)
}

/// Returns a page of the pending rows that the markers name; `files` returns the files of a scope.
pub(crate) fn page(
    markers: &[Arc<Marker>],
    files: impl Fn(&Scope) -> Result<Files>,
    query: &PendingQuery,
) -> PendingPage {
    let mut runs = Vec::new();
    for marker in markers {
        let scope = Scope::new(marker.scope.as_str());
        let Ok(files) = files(&scope) else {
            continue;
        };
        match files.header(&marker.snapshot_id) {
            Ok(Some(row)) if row.status == SnapshotStatus::Pending => runs.push(PendingRun {
                scope,
                snapshot: row.outline(),
            }),
            // A marker that cannot be removed now is read again next time.
            Ok(_) => drop(files.unmark_stale(&marker.snapshot_id)),
            // A row that cannot be read now must not hide the others; it is read again next time.
            Err(_) => {}
        }
    }
    let mut page = PendingPage::cut(query, runs);
    page.items.retain_mut(|run| complete(&files, query, run));
    page
}

/// Reads the run's row; `false` if the run no longer matches the query.
fn complete(files: impl Fn(&Scope) -> Result<Files>, query: &PendingQuery, run: &mut PendingRun) -> bool {
    let row = files(&run.scope).and_then(|files| files.read(&run.snapshot.snapshot_id, Detail::Metadata));
    match row {
        Ok(Some(row)) if query.wants(&row) => {
            run.snapshot = row;
            true
        }
        _ => false,
    }
}
