//! Positions in a session's order of snapshots.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Snapshot;
use crate::SnapshotId;

/// A position in a listing: the snapshot that ended a page. Snapshots written meanwhile do not move it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cursor {
    /// When the snapshot was created.
    #[schemars(with = "String")]
    pub created_at: Timestamp,
    /// The snapshot's id.
    pub snapshot_id: SnapshotId,
}

impl Cursor {
    /// Creates the position of a snapshot.
    pub fn at(snapshot: &Snapshot) -> Self {
        Self {
            created_at: snapshot.created_at,
            snapshot_id: snapshot.snapshot_id.clone(),
        }
    }

    /// Returns the position as a sort key.
    pub fn position(&self) -> (Timestamp, &SnapshotId) {
        (self.created_at, &self.snapshot_id)
    }
}
