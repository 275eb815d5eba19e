//! Deleting rows for good.

use std::path::Path;

use everturn_agent::SnapshotId;
use everturn_agent::store::Deletion;
use everturn_core::Result;

use crate::files::Files;
use crate::journal::Journals;

impl Files {
    /// Deletes rows, and a deleted session's journals with them. Returns the ids of the rows that existed.
    pub(crate) fn delete(&self, deletion: Deletion, journals: &Journals) -> Result<Vec<SnapshotId>> {
        let ids = match deletion {
            Deletion::Snapshots(ids) => ids,
            Deletion::Session(session) => {
                journals.delete_session(self, &session)?;
                let headers = self.headers(&session)?;
                headers.iter().map(|header| header.snapshot_id.clone()).collect()
            }
        };
        self.delete_rows(&ids)
    }

    /// Deletes rows and the pointers that name them.
    fn delete_rows(&self, ids: &[SnapshotId]) -> Result<Vec<SnapshotId>> {
        self.disk.create_folder(&self.folder.pointers())?;
        let _lock = self.lock()?;
        let mut deleted = Vec::new();
        for id in ids {
            let path = self.folder.row(id)?;
            let Some(header) = self.header_in(&path)? else {
                continue;
            };
            self.remove(&path)?;
            self.unmark(id);
            deleted.push(id.clone());
            if let Some(session) = &header.session_id
                && self.pointer(session)?.as_ref() == Some(id)
            {
                self.disk.remove(&self.folder.pointer(session)?)?;
            }
        }
        self.disk.sync_folder(self.folder.path())?;
        Ok(deleted)
    }

    /// Removes the file of a row.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)?;
        self.headers.forget(path);
        Ok(())
    }
}
