//! Deleting snapshots and sessions permanently.

use everturn_core::stream_log::StreamSubject;
use everturn_core::{Result, Status};

use super::{Archive, SnapshotTree, named_session, named_snapshot, tenants};
use crate::store::{Deletion, Detail};
use crate::{SessionId, SnapshotId};

impl Archive {
    /// Deletes a snapshot permanently and returns whether it existed.
    ///
    /// Its children keep their own states and can be resumed; they only lose their parent. A background run
    /// whose snapshot is deleted has no result.
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

    /// Deletes a session permanently, with all its snapshots, journals and kept streams, and returns the
    /// number of its snapshots.
    ///
    /// Forks and copies are separate sessions and stay. A turn in progress fails when it commits, and leaves
    /// nothing.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id; the errors of the store and of the stream logs. A failed deletion
    /// can be repeated; already deleted data stays deleted.
    pub async fn delete_session(&self, session: impl Into<SessionId>) -> Result<u64> {
        let session = named_session(session)?;
        let deleted = self.tenant.delete(&Deletion::Session(session.clone())).await?;
        self.erase_streams(&StreamSubject::session(self.scope().as_str(), session.as_str()))
            .await?;
        Ok(deleted)
    }

    /// Deletes everything of the tenant permanently: all sessions with their snapshots, their journals and
    /// the kept streams. Returns the number of snapshots.
    ///
    /// ```
    /// use everturn_agent::archive::Archive;
    /// use everturn_agent::store::MemoryStore;
    /// use everturn_core::{Principal, Result, Status};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let archive = Archive::of(MemoryStore::new(), Principal::new("alice").scope());
    ///
    /// assert_eq!(archive.delete_all().await.unwrap_err().status(), Status::NotFound);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NOT_FOUND` if the tenant has nothing in the store; the errors of the store and of the stream logs. A
    /// failed deletion can be repeated; already deleted data stays deleted.
    pub async fn delete_all(&self) -> Result<u64> {
        match tenants::find(&**self.tenant.store(), self.scope()).await {
            // A store that cannot list its tenants.
            Err(error) if error.status() == Status::Unimplemented => {}
            Err(error) if error.status() == Status::NotFound => {
                // Agents that store no sessions may have kept streams.
                self.erase_all_streams().await?;
                return Err(error);
            }
            found => drop(found?),
        }
        self.erase().await
    }

    /// Deletes everything of the tenant, if there is anything.
    pub(super) async fn erase(&self) -> Result<u64> {
        let deleted = self.tenant.delete(&Deletion::Tenant).await?;
        self.erase_all_streams().await?;
        Ok(deleted)
    }

    async fn erase_all_streams(&self) -> Result<()> {
        self.erase_streams(&StreamSubject::tenant(self.scope().as_str()))
            .await
    }

    /// Erases the kept streams of the tenant or of one of its sessions.
    pub(super) async fn erase_streams(&self, subject: &StreamSubject) -> Result<()> {
        for log in &self.streams {
            log.erase(subject).await?;
        }
        Ok(())
    }
}
