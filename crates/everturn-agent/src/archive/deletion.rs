//! Deleting snapshots and sessions permanently.

use everturn_core::Result;

use super::{Archive, SnapshotTree, named_session, named_snapshot};
use crate::store::{Deletion, Detail};
use crate::{SessionId, SnapshotId};

impl Archive {
    /// Deletes a snapshot permanently and returns whether it existed.
    ///
    /// Its children keep their own states and can be resumed; they only lose their parent. A background run whose
    /// snapshot is deleted has no result.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id.
    pub async fn delete_snapshot(&self, id: impl Into<SnapshotId>) -> Result<bool> {
        let deletion = Deletion::Snapshots(vec![named_snapshot(id)?]);
        Ok(self.tenant.delete(&deletion).await? > 0)
    }

    /// Deletes a snapshot and all its descendants in its session permanently, and returns their number.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id.
    pub async fn delete_branch(&self, id: impl Into<SnapshotId>) -> Result<u64> {
        let id = named_snapshot(id)?;
        let snapshot = self.tenant.get(&id, Detail::Metadata).await?;
        let Some(session) = snapshot.and_then(|snapshot| snapshot.session_id) else {
            return Ok(u64::from(self.delete_snapshot(id).await?));
        };
        let snapshots = self.stored_snapshots(&session).await?;
        let tree = SnapshotTree::of(session, snapshots);
        let branch = tree.find(&id).map(|node| node.branch()).unwrap_or_default();
        let ids = branch
            .into_iter()
            .map(|snapshot| snapshot.snapshot_id.clone())
            .collect();
        self.tenant.delete(&Deletion::Snapshots(ids)).await
    }

    /// Deletes a session with all its snapshots permanently and returns their number.
    ///
    /// Forks and copies are sessions of their own and stay.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id.
    pub async fn delete_session(&self, session: impl Into<SessionId>) -> Result<u64> {
        let deletion = Deletion::Session(named_session(session)?);
        self.tenant.delete(&deletion).await
    }
}
