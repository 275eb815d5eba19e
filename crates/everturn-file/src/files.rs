//! Rows and pointers as files of one scope. Everything here blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Mutation, Precondition, admit, tip_moved};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::disk::Disk;
use crate::layout::Folder;

/// What a look at a row's place in its session needs; the rest of the file is passed over.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    pub(crate) snapshot_id: SnapshotId,
    #[serde(default)]
    pub(crate) session_id: Option<SessionId>,
    #[serde(default)]
    pub(crate) parent_id: Option<SnapshotId>,
    pub(crate) created_at: Timestamp,
    #[serde(default)]
    pub(crate) orphaned: bool,
}

impl Header {
    pub(crate) fn position(&self) -> (Timestamp, &SnapshotId) {
        (self.created_at, &self.snapshot_id)
    }
}

/// The file that names a session's latest row.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pointer {
    current_snapshot_id: SnapshotId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current_created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

/// The files of one scope.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) folder: Folder,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) max_chain: Option<usize>,
}

impl Files {
    pub(crate) fn read(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        let path = self.folder.row(id)?;
        let Some(content) = self.disk.read(&path)? else {
            return Ok(None);
        };
        let snapshot = serde_json::from_slice(&content)
            .map_err(|error| Error::data_loss(format!("'{}' is not a snapshot: {error}", path.display())))?;
        Ok(Some(snapshot))
    }

    /// The session's latest row: the pointer's if it holds, else the greatest of all, which repairs the pointer.
    pub(crate) fn latest(&self, session: &SessionId) -> Result<Option<Snapshot>> {
        let pointer: Option<Pointer> = self.read_lenient(&self.folder.pointer(session)?)?;
        if let Some(pointer) = pointer
            && let Some(row) = self.read(&pointer.current_snapshot_id)?
            && row.session_id.as_ref() == Some(session)
        {
            return Ok(Some(row));
        }
        let mut rows = self.headers(session)?;
        rows.sort_by(|one, other| one.position().cmp(&other.position()));
        let Some(latest) = rows.pop() else {
            return Ok(None);
        };
        // A pointer only saves a scan: failing to repair it costs the next reader another one.
        let _ = self.point(session, &latest.snapshot_id, latest.created_at);
        self.read(&latest.snapshot_id)
    }

    /// The id of the session's latest row; a row's place is enough to know, and its conversation is passed over.
    pub(crate) fn latest_id(&self, session: &SessionId) -> Result<Option<SnapshotId>> {
        let pointer: Option<Pointer> = self.read_lenient(&self.folder.pointer(session)?)?;
        if let Some(pointer) = pointer {
            let row: Option<Header> = self.read_lenient(&self.folder.row(&pointer.current_snapshot_id)?)?;
            if row.is_some_and(|row| row.session_id.as_ref() == Some(session)) {
                return Ok(Some(pointer.current_snapshot_id));
            }
        }
        Ok(self.latest(session)?.map(|row| row.snapshot_id))
    }

    /// The headers of a session's rows, in no order. Files that are no snapshots are passed over.
    pub(crate) fn headers(&self, session: &SessionId) -> Result<Vec<Header>> {
        let mut headers = self.all_headers()?;
        headers.retain(|header| header.session_id.as_ref() == Some(session));
        Ok(headers)
    }

    pub(crate) fn all_headers(&self) -> Result<Vec<Header>> {
        let mut headers = Vec::new();
        for path in self.disk.list(self.folder.path())? {
            if path.extension().is_some_and(|extension| extension == "json")
                && let Some(header) = self.read_lenient(&path)?
            {
                headers.push(header);
            }
        }
        Ok(headers)
    }

    fn read_lenient<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        Ok(self
            .disk
            .read(path)?
            .and_then(|content| serde_json::from_slice(&content).ok()))
    }

    /// One atomic read-modify-write. Returns the row before and after, or `None` if nothing was written.
    pub(crate) fn save(
        &self,
        id: &SnapshotId,
        precondition: &Precondition,
        mutation: &Mutation,
    ) -> Result<Option<(Option<Snapshot>, Snapshot)>> {
        self.folder.row(id)?;
        self.disk.create_folder(&self.folder.pointers())?;
        let _lock = self.disk.lock(&self.folder.lock())?;

        let existing = self.read(id)?;
        let Some(row) = mutation(existing.as_ref())? else {
            return Ok(None);
        };
        let row = admit(id, existing.as_ref(), row)?;
        if existing.is_none() {
            self.advance(&row, precondition)?;
        }
        self.put(&self.folder.row(id)?, &row)?;
        if let Some(max_chain) = self.max_chain {
            self.prune(&row, max_chain)?;
        }
        Ok(Some((existing, row)))
    }

    /// Moves the session's pointer to a new row if it sorts ahead.
    ///
    /// The pointer goes first: should the process die before the row is there, the pointer names a row that does not
    /// exist and the next look-up finds the latest by scanning. The other way round a row could be there, and later
    /// be built upon, that no look-up by session ever finds.
    fn advance(&self, row: &Snapshot, precondition: &Precondition) -> Result<()> {
        let Some(session) = &row.session_id else {
            return Ok(());
        };
        let tip = self.latest(session)?;
        if let Precondition::Tip(expected) = precondition {
            let found = tip.as_ref().map(|tip| &tip.snapshot_id);
            if found != expected.as_ref() {
                return Err(tip_moved(session, expected.as_ref(), found));
            }
        }
        if tip.is_none_or(|tip| row.position() > tip.position()) {
            self.point(session, &row.snapshot_id, row.created_at)?;
        }
        Ok(())
    }

    fn point(&self, session: &SessionId, id: &SnapshotId, created_at: Timestamp) -> Result<()> {
        let pointer = Pointer {
            current_snapshot_id: id.clone(),
            current_created_at: Some(created_at),
            updated_at: Some(Timestamp::now()),
        };
        self.put(&self.folder.pointer(session)?, &pointer)
    }

    /// Writes a file as a whole or not at all, and has it on the device before it returns.
    pub(crate) fn put<T: Serialize>(&self, path: &Path, document: &T) -> Result<()> {
        let content = serde_json::to_vec_pretty(document)?;
        let temporary = temporary_name(path);
        let written = self
            .disk
            .write(&temporary, &content)
            .and_then(|()| self.disk.sync_file(&temporary))
            .and_then(|()| self.disk.rename(&temporary, path));
        if let Err(error) = written {
            // Best effort: what cannot be written may not be removable either, and readers pass it over.
            let _ = self.disk.remove(&temporary);
            return Err(
                Error::unavailable(format!("cannot write '{}': {error}", path.display())).with_source(error),
            );
        }
        if let Some(folder) = path.parent() {
            self.disk.sync_folder(folder)?;
        }
        Ok(())
    }

    /// Deletes the ancestors of a row beyond the newest `max_chain`, the row included.
    fn prune(&self, row: &Snapshot, max_chain: usize) -> Result<()> {
        let mut seen = std::collections::HashSet::from([row.snapshot_id.clone()]);
        let mut next = row.parent_id.clone();
        while let Some(id) = next
            && seen.insert(id.clone())
        {
            let Some(ancestor) = self.read_lenient::<Header>(&self.folder.row(&id)?)? else {
                break;
            };
            if seen.len() > max_chain {
                self.disk.remove(&self.folder.row(&id)?)?;
            }
            next = ancestor.parent_id.filter(|id| !id.as_str().is_empty());
        }
        Ok(())
    }

    /// Deletes rows and mends the pointers of their sessions. Returns those that were there.
    pub(crate) fn delete(&self, ids: &[SnapshotId]) -> Result<Vec<SnapshotId>> {
        self.disk.create_folder(&self.folder.pointers())?;
        let _lock = self.disk.lock(&self.folder.lock())?;
        let mut deleted = Vec::new();
        for id in ids {
            let path = self.folder.row(id)?;
            let Some(header) = self.read_lenient::<Header>(&path)? else {
                continue;
            };
            self.disk.remove(&path)?;
            deleted.push(id.clone());
            if let Some(session) = &header.session_id {
                let pointer = self.folder.pointer(session)?;
                let current: Option<Pointer> = self.read_lenient(&pointer)?;
                if current.is_some_and(|current| current.current_snapshot_id == *id) {
                    self.disk.remove(&pointer)?;
                }
            }
        }
        self.disk.sync_folder(self.folder.path())?;
        Ok(deleted)
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", Uuid::new_v4().simple()));
    path.with_file_name(name)
}
