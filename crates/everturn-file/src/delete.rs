//! Deleting rows for good.

use std::collections::BTreeSet;
use std::path::Path;

use everturn_agent::store::Deletion;
use everturn_agent::{SessionId, SnapshotId};
use everturn_core::Result;

use crate::files::{Files, Lock};
use crate::row;

impl Files {
    /// Returns the ids of the rows to delete.
    pub(crate) fn to_delete(&self, deletion: Deletion) -> Result<Vec<SnapshotId>> {
        match deletion {
            Deletion::Snapshots(ids) => Ok(ids),
            Deletion::Tenant => {
                // By the names of files, so that damaged rows go too.
                let files = self.disk.list(self.folder.path())?;
                let rows = files.iter().filter(|path| is_row(path));
                let ids = rows.filter_map(|path| path.file_stem()?.to_str());
                Ok(ids.map(SnapshotId::from).collect())
            }
            Deletion::Session(session) => {
                let headers = self.headers(&session)?;
                let mut ids: Vec<_> = headers.iter().map(|header| header.snapshot_id.clone()).collect();
                // Names a row that is missing or damaged and so has no header.
                let pointed = self.pointer(&session)?.map(|pointer| pointer.current_snapshot_id);
                ids.extend(pointed.filter(|pointed| !ids.contains(pointed)));
                for (path, content) in self.unreadable()? {
                    let id = path
                        .file_stem()
                        .and_then(|name| name.to_str())
                        .map(SnapshotId::from);
                    let is_own = row::session_in(&content).as_ref() == Some(&session);
                    ids.extend(id.filter(|id| is_own && !ids.contains(id)));
                }
                Ok(ids)
            }
        }
    }

    /// Deletes rows and the pointers that name them. Returns the ids of the rows that existed.
    pub(crate) fn delete_rows(&self, ids: &[SnapshotId], lock: &Lock) -> Result<Vec<SnapshotId>> {
        let (mut existing, mut sessions, mut lost) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for id in ids {
            let path = self.folder.row(id)?;
            match self.header_in(&path)? {
                Some(header) => sessions.extend(header.session_id.clone()),
                None => lost.extend(self.session_of_lost(id)?),
            }
            if self.exists(&path)? {
                existing.push((id.clone(), path));
            }
        }
        // A pointer without its row would say that the row was lost.
        for session in sessions.union(&lost) {
            let is_stale = match self.pointer(session)? {
                Some(pointer) => ids.contains(&pointer.current_snapshot_id),
                None => lost.contains(session),
            };
            if is_stale {
                self.disk.remove(&self.folder.pointer(session)?)?;
            }
        }
        self.disk.sync_folder(&self.folder.pointers())?;
        for (id, path) in &existing {
            self.remove(path)?;
            self.unmark(id);
        }
        self.disk.sync_folder(self.folder.path())?;
        for session in sessions.union(&lost) {
            // If the pointer cannot be written, the next look-up scans.
            let _ = self.tip(session, lock);
        }
        Ok(existing.into_iter().map(|(id, _)| id).collect())
    }

    /// Returns whether the tenant has rows, damaged ones included.
    pub(crate) fn has_rows(&self) -> Result<bool> {
        Ok(self
            .disk
            .list(self.folder.path())?
            .iter()
            .any(|path| is_row(path)))
    }

    /// Removes what is left of a tenant without rows: pointers of lost rows, and files that a crash left
    /// behind.
    pub(crate) fn delete_rest(&self) -> Result<()> {
        for folder in [self.folder.pointers(), self.folder.path().to_owned()] {
            for path in self.disk.list(&folder)? {
                if path != self.folder.lock() {
                    self.remove(&path)?;
                }
            }
            self.disk.sync_folder(&folder)?;
        }
        Ok(())
    }

    /// Returns whether there is a file of that name, whatever is in it.
    fn exists(&self, path: &Path) -> Result<bool> {
        match self.disk.read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(true),
            content => Ok(content?.is_some()),
        }
    }

    /// Returns the session of a row that cannot be read: the one whose pointer names it, or the one that it
    /// names itself.
    fn session_of_lost(&self, id: &SnapshotId) -> Result<Option<SessionId>> {
        for path in self.disk.list(&self.folder.pointers())? {
            let pointer = self.pointer_in(&path)?;
            if pointer.is_some_and(|pointer| pointer.current_snapshot_id == *id) {
                let session = path.file_stem().and_then(|name| name.to_str());
                return Ok(session.map(SessionId::from));
            }
        }
        let content = self.content(&self.folder.row(id)?).ok().flatten();
        Ok(content.and_then(|content| row::session_in(&content)))
    }

    /// Removes the file of a row.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)?;
        self.headers.forget(path);
        Ok(())
    }
}

fn is_row(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json")
}
