//! The decision of a rewind, which the session's latest snapshot holds until the rewind is finished.

use std::collections::{HashMap, HashSet};

use everturn_ai::JsonObject;
use everturn_macros::wire;
use serde::{Deserialize, Serialize};

use super::{Cursor, Snapshot};
use crate::SnapshotId;

/// The snapshots that a rewind keeps: those that lead from the session's beginning to one snapshot.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rewind {
    /// The last snapshot that is kept.
    keep: SnapshotId,
    /// The last snapshot before which nothing changes: there the kept snapshots part from those that were
    /// kept before. `None` is the session's beginning.
    fork: Option<Cursor>,
    /// Fields of other versions.
    #[serde(flatten)]
    extra: JsonObject,
}

impl Rewind {
    pub(crate) fn new(keep: SnapshotId, fork: Option<Cursor>) -> Self {
        Self {
            keep,
            fork,
            extra: JsonObject::new(),
        }
    }

    /// Like this rewind, but keeps the snapshots that lead to `tip`, which follows the one that is kept now.
    pub(crate) fn extended_to(mut self, tip: &SnapshotId) -> Self {
        self.keep = tip.clone();
        self
    }

    pub(crate) fn fork(&self) -> Option<&Cursor> {
        self.fork.as_ref()
    }

    /// Returns which of the snapshots after the fork are kept; `None` if the one to keep no longer exists.
    pub(crate) fn kept<'a>(&self, snapshots: &'a [Snapshot]) -> Option<HashSet<&'a SnapshotId>> {
        let parents: HashMap<&SnapshotId, Option<&SnapshotId>> = snapshots
            .iter()
            .map(|snapshot| (&snapshot.snapshot_id, snapshot.parent_id.as_ref()))
            .collect();
        let ends_at_the_fork = self
            .fork
            .as_ref()
            .is_some_and(|fork| fork.snapshot_id == self.keep);
        if !ends_at_the_fork && !parents.contains_key(&self.keep) {
            return None;
        }
        let mut kept = HashSet::new();
        let mut next = Some(&self.keep);
        while let Some((id, parent)) = next.and_then(|id| parents.get_key_value(id)) {
            // Snapshots in a cycle were not written by this framework, but must not be followed forever.
            if !kept.insert(*id) {
                break;
            }
            next = *parent;
        }
        Some(kept)
    }
}
