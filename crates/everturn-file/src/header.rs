//! What is known of a row without its conversation: enough to find it, to sort it and to see whether it is over.

use std::path::Path;

use everturn_agent::store::Detail;
use everturn_agent::{SessionId, Snapshot, SnapshotId, SnapshotStatus};
use jiff::Timestamp;

use crate::layout::Folder;
use crate::row;

/// A row's place in its session and in its life. As small as it can be: a store keeps one of each row that it looked at.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) snapshot_id: SnapshotId,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) parent_id: Option<SnapshotId>,
    pub(crate) created_at: Timestamp,
    pub(crate) heartbeat_at: Option<Timestamp>,
    pub(crate) status: SnapshotStatus,
    pub(crate) orphaned: bool,
}

impl Header {
    /// The header of a file, if it is a row's and the file is named after it. Nothing else can be read by its id.
    pub(crate) fn parse(folder: &Folder, path: &Path, content: &[u8]) -> Option<Self> {
        let row = row::parse(path, content, Detail::Metadata).ok()?;
        (folder.row(&row.snapshot_id).ok()? == path).then(|| row.into())
    }

    pub(crate) fn position(&self) -> (Timestamp, &SnapshotId) {
        (self.created_at, &self.snapshot_id)
    }

    /// The row, as far as it is known.
    pub(crate) fn outline(&self) -> Snapshot {
        Snapshot {
            session_id: self.session_id.clone(),
            parent_id: self.parent_id.clone(),
            heartbeat_at: self.heartbeat_at,
            status: self.status,
            orphaned: self.orphaned,
            ..Snapshot::new(self.snapshot_id.clone(), SessionId::from(""), self.created_at)
        }
    }
}

impl From<Snapshot> for Header {
    fn from(row: Snapshot) -> Self {
        Self {
            snapshot_id: row.snapshot_id,
            session_id: row.session_id,
            parent_id: row.parent_id,
            created_at: row.created_at,
            heartbeat_at: row.heartbeat_at,
            status: row.status,
            orphaned: row.orphaned,
        }
    }
}
