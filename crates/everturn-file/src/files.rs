//! Rows and pointers as files of one scope. Everything here blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Detail, Mutation, Precondition, Scope, admit, tip_moved};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cache::Cache;
use crate::disk::Disk;
use crate::header::Header;
use crate::layout::Folder;
use crate::store::FileStore;
use crate::{pending, row};

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
    max_chain: Option<usize>,
    headers: Cache<Header>,
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
        })
    }

    pub(crate) fn read(&self, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        let path = self.folder.row(id)?;
        let content = self.disk.read(&path)?;
        let row = content.map(|content| row::parse(&content, detail)).transpose();
        row.map_err(|error| Error::data_loss(format!("'{}' is not a snapshot: {error}", path.display())))
    }

    /// The session's latest row, for readers.
    ///
    /// A pointer that does not hold may belong to a save that is under way, so it is looked at again, and mended, only
    /// where no save can be: a reader that put it back would hide the new row from the next writer.
    pub(crate) fn latest(&self, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        if let Some(id) = self.pointer(session)?
            && let Some(row) = self.read(&id, detail)?
            && row.session_id.as_ref() == Some(session)
            && !row.orphaned
        {
            return Ok(Some(row));
        }
        // What is read now does not have to be read while everybody waits for the lock.
        let seen = self.greatest(session)?;
        let read = |latest: Option<Arc<Header>>| {
            latest.map_or(Ok(None), |latest| self.read(&latest.snapshot_id, detail))
        };
        match self.disk.lock(&self.folder.lock()) {
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
    fn glance(&self, path: &Path) -> Result<Option<Arc<Header>>> {
        let parse = |path: &Path, content: &[u8]| Header::parse(&self.folder, path, content);
        Ok(self.headers.read(&*self.disk, path, parse)?)
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

        let existing = self.read(id, Detail::Whole)?;
        let Some(row) = mutation(existing.as_ref())? else {
            return Ok(None);
        };
        let row = admit(id, existing.as_ref(), row)?;
        // Before the pointer moves: a row that cannot be kept leaves no trace.
        let content = encode(&row)?;
        match &existing {
            None => self.advance(&row, precondition)?,
            Some(existing) if existing.orphaned != row.orphaned => self.forget_latest(&row)?,
            Some(_) => {}
        }
        let (begins, ends) = pending::changes(existing.as_ref(), &row);
        if begins {
            self.mark(id)?;
        }
        self.write(&self.folder.row(id)?, &content)?;
        if ends {
            self.unmark(id);
        }
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
        let tip = self.tip(session)?;
        if let Precondition::Tip(expected) = precondition {
            let found = tip.as_ref().map(|tip| &tip.snapshot_id);
            if found != expected.as_ref() {
                return Err(tip_moved(session, expected.as_ref(), found));
            }
        }
        if !row.orphaned && tip.is_none_or(|tip| row.position() > tip.position()) {
            self.point(session, &row.snapshot_id, row.created_at)?;
        }
        Ok(())
    }

    /// Leaves it to the next look-up to find the session's latest row: a row is about to be left behind or recovered.
    fn forget_latest(&self, row: &Snapshot) -> Result<()> {
        let Some(session) = &row.session_id else {
            return Ok(());
        };
        let pointer = self.folder.pointer(session)?;
        if self.disk.read(&pointer)?.is_some() {
            self.disk.remove(&pointer)?;
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

    pub(crate) fn put<T: Serialize>(&self, path: &Path, document: &T) -> Result<()> {
        self.write(path, &encode(document)?)
    }

    /// Writes a file as a whole or not at all, and has it on the device before it returns.
    fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        let temporary = temporary_name(path);
        let written = self
            .disk
            .write(&temporary, content)
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
        while let Some(id) = &next
            && seen.insert(id.clone())
        {
            // A parent of a name that no row can have is not here.
            let Ok(path) = self.folder.row(id) else {
                break;
            };
            let Some(ancestor) = self.glance(&path)? else {
                break;
            };
            if seen.len() > max_chain {
                self.remove(&path)?;
            }
            next.clone_from(&ancestor.parent_id);
        }
        Ok(())
    }

    /// Removes the file of a row.
    fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)?;
        self.headers.forget(path);
        Ok(())
    }

    /// Deletes rows and mends the pointers of their sessions. Returns those that were there.
    pub(crate) fn delete(&self, ids: &[SnapshotId]) -> Result<Vec<SnapshotId>> {
        self.disk.create_folder(&self.folder.pointers())?;
        let _lock = self.disk.lock(&self.folder.lock())?;
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
fn encode<T: Serialize>(document: &T) -> Result<Vec<u8>> {
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

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", Uuid::new_v4().simple()));
    path.with_file_name(name)
}
