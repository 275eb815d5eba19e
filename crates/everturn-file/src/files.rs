//! Rows and pointers as files of one scope. Everything here blocks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Detail, Scope};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;

use crate::cache::Cache;
use crate::disk::Disk;
use crate::header::Header;
use crate::layout::Folder;
use crate::queue::Queues;
use crate::row;
use crate::staged::Staged;
use crate::store::FileStore;

/// How deeply a file may be nested: what is deeper could be written and not be read, which stops at 128 levels, the last
/// of which may be an empty one that is written without a line of its own.
const MAX_DEPTH: usize = 126;

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
    pub(crate) root: PathBuf,
    pub(crate) scope: Scope,
    pub(crate) folder: Folder,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) max_chain: Option<usize>,
    headers: Cache<Header>,
    queues: Queues,
}

/// A scope's lock, held.
pub(crate) struct Lock {
    _held: Box<dyn Send>,
    // Let go of last: the next in the queue finds the lock free.
    _turn: OwnedMutexGuard<()>,
}

impl Files {
    /// The files of a scope in a store.
    pub(crate) fn of(store: &FileStore, scope: &Scope) -> Result<Self> {
        let options = &store.options;
        Ok(Self {
            root: options.root.clone(),
            scope: scope.clone(),
            folder: Folder::of(&options.root, scope)?,
            disk: options.disk.clone(),
            max_chain: options.max_chain,
            headers: store.headers.clone(),
            queues: store.queues.clone(),
        })
    }

    /// Waits for the scope's lock, which excludes the writers of all processes.
    pub(crate) fn lock(&self) -> io::Result<Lock> {
        let turn = self.queues.turn(&self.folder);
        Ok(Lock {
            _held: self.disk.lock(&self.folder.lock())?,
            _turn: turn,
        })
    }

    pub(crate) fn read(&self, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        let path = self.folder.row(id)?;
        let content = self.disk.read(&path)?;
        content
            .map(|content| row::parse(&path, &content, detail))
            .transpose()
    }

    /// The session's latest row, for readers.
    ///
    /// A pointer that does not hold may belong to a save that is under way, so it is looked at again, and mended, only
    /// where no save can be: a reader that put it back would hide the new row from the next writer.
    pub(crate) fn latest(&self, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        let pointer = self.pointer(session)?;
        if let Some(id) = &pointer
            && let Some(row) = self.read(id, detail)?
            && row.session_id.as_ref() == Some(session)
            && !row.orphaned
        {
            return Ok(Some(row));
        }
        // What is read now does not have to be read while everybody waits for the lock.
        let seen = self.greatest(session)?;
        if pointer.is_none() && seen.is_none() {
            return Ok(None);
        }
        let read = |latest: Option<Arc<Header>>| {
            latest.map_or(Ok(None), |latest| self.read(&latest.snapshot_id, detail))
        };
        match self.lock() {
            Ok(_lock) => read(self.tip(session)?),
            // There is no folder yet, or it may not be written to.
            Err(_) => read(seen),
        }
    }

    /// The session's latest row, for whoever holds the lock: the pointer's if it holds, else the greatest of all, which
    /// mends the pointer.
    pub(crate) fn tip(&self, session: &SessionId) -> Result<Option<Arc<Header>>> {
        if let Some(id) = self.pointer(session)?
            && let Some(row) = self.header(&id)?
            && row.session_id.as_ref() == Some(session)
            && !row.orphaned
        {
            return Ok(Some(row));
        }
        let greatest = self.greatest(session)?;
        if let Some(greatest) = &greatest {
            // A pointer only saves a scan: failing to mend it costs the next reader another one.
            let _ = self.point(session, &greatest.snapshot_id, greatest.created_at);
        }
        Ok(greatest)
    }

    /// What the session's pointer names, unless it is a name that no row can have.
    fn pointer(&self, session: &SessionId) -> Result<Option<SnapshotId>> {
        let pointer: Option<Pointer> = self.read_lenient(&self.folder.pointer(session)?)?;
        let id = pointer.map(|pointer| pointer.current_snapshot_id);
        Ok(id.filter(|id| self.folder.row(id).is_ok()))
    }

    /// The session's row that sorts last of those that no rewind left behind.
    fn greatest(&self, session: &SessionId) -> Result<Option<Arc<Header>>> {
        let mut kept = self.headers(session)?;
        kept.retain(|header| !header.orphaned);
        Ok(kept
            .into_iter()
            .max_by(|one, other| one.position().cmp(&other.position())))
    }

    /// The headers of a session's rows, in no order. Files that are no snapshots are passed over.
    pub(crate) fn headers(&self, session: &SessionId) -> Result<Vec<Arc<Header>>> {
        let mut headers = self.all_headers()?;
        headers.retain(|header| header.session_id.as_ref() == Some(session));
        Ok(headers)
    }

    pub(crate) fn all_headers(&self) -> Result<Vec<Arc<Header>>> {
        let parse = |path: &Path, content: &[u8]| Header::parse(&self.folder, path, content);
        Ok(self.headers.read_all(&*self.disk, self.folder.path(), parse)?)
    }

    /// The header of a row.
    ///
    /// # Errors
    /// `DATA_LOSS` if there is a file in its place that is no row.
    pub(crate) fn header(&self, id: &SnapshotId) -> Result<Option<Arc<Header>>> {
        if let Some(header) = self.glance(&self.folder.row(id)?)? {
            return Ok(Some(header));
        }
        Ok(self.read(id, Detail::Metadata)?.map(|row| Arc::new(row.into())))
    }

    /// The header of the row in a file; `None` if there is no such file or it is no row.
    pub(crate) fn glance(&self, path: &Path) -> Result<Option<Arc<Header>>> {
        let parse = |path: &Path, content: &[u8]| Header::parse(&self.folder, path, content);
        Ok(self.headers.read(&*self.disk, path, parse)?)
    }

    fn read_lenient<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        Ok(self
            .disk
            .read(path)?
            .and_then(|content| serde_json::from_slice(&content).ok()))
    }

    pub(crate) fn point(&self, session: &SessionId, id: &SnapshotId, created_at: Timestamp) -> Result<()> {
        let pointer = Pointer {
            current_snapshot_id: id.clone(),
            current_created_at: Some(created_at),
            updated_at: Some(Timestamp::now()),
        };
        self.put(&self.folder.pointer(session)?, &pointer)
    }

    /// Writes a file as a whole or not at all, and has it on the device before it returns.
    pub(crate) fn put<T: Serialize>(&self, path: &Path, document: &T) -> Result<()> {
        Staged::beside(&self.disk, path, &encode(document)?)?.publish(path)?;
        if let Some(folder) = path.parent() {
            self.disk.sync_folder(folder)?;
        }
        Ok(())
    }

    /// Removes the file of a row.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)?;
        self.headers.forget(path);
        Ok(())
    }

    /// Deletes rows and mends the pointers of their sessions. Returns those that were there.
    pub(crate) fn delete(&self, ids: &[SnapshotId]) -> Result<Vec<SnapshotId>> {
        self.disk.create_folder(&self.folder.pointers())?;
        let _lock = self.lock()?;
        let mut deleted = Vec::new();
        for id in ids {
            let path = self.folder.row(id)?;
            let Some(header) = self.glance(&path)? else {
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
}

/// A document as the content of a file, unless it is nested too deeply to be read back.
pub(crate) fn encode<T: Serialize>(document: &T) -> Result<Vec<u8>> {
    let content = serde_json::to_vec_pretty(document)?;
    if depth(&content) > MAX_DEPTH {
        return Err(Error::invalid_argument(format!(
            "a value nested deeper than {MAX_DEPTH} levels cannot be kept"
        )));
    }
    Ok(content)
}

/// How deeply a document is nested that was written with two spaces per level. Line breaks are nowhere else: those in
/// strings are escaped.
fn depth(content: &[u8]) -> usize {
    let lines = content.split(|byte| *byte == b'\n');
    let indents = lines.map(|line| line.iter().take_while(|byte| **byte == b' ').count());
    indents.max().unwrap_or(0) / 2
}
