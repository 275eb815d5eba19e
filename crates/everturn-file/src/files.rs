//! Rows and pointers as files of one scope. Everything here blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Mutation, Precondition, Scope, admit, tip_moved};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::disk::Disk;
use crate::layout::Folder;
use crate::options::FileStoreOptions;
use crate::pending;

/// How deeply a file may be nested: what is deeper could be written and not be read, which stops at 128 levels, the last
/// of which may be an empty one that is written without a line of its own.
const MAX_DEPTH: usize = 126;

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
    #[serde(default)]
    state: Option<StateHeader>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateHeader {
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl Header {
    /// The header of a file, if it is a row's and the file is named after it. Nothing else can be read by its id.
    fn of(folder: &Folder, path: &Path, content: &[u8]) -> Option<Self> {
        let mut header: Self = serde_json::from_slice(content).ok()?;
        if folder.row(&header.snapshot_id).ok()? != path {
            return None;
        }
        let inside = header.state.take().and_then(|state| state.session_id);
        header.session_id = session_of(header.session_id.take(), inside);
        Some(header)
    }

    pub(crate) fn position(&self) -> (Timestamp, &SnapshotId) {
        (self.created_at, &self.snapshot_id)
    }
}

/// The session of a row; peers may name it nowhere but in the state.
fn session_of(own: Option<SessionId>, in_state: Option<SessionId>) -> Option<SessionId> {
    own.into_iter()
        .chain(in_state)
        .find(|session| !session.as_str().is_empty())
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
    pub(crate) root: PathBuf,
    pub(crate) scope: Scope,
    pub(crate) folder: Folder,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) max_chain: Option<usize>,
}

impl Files {
    /// The files of a scope in a store.
    pub(crate) fn of(options: &FileStoreOptions, scope: &Scope) -> Result<Self> {
        Ok(Self {
            root: options.root.clone(),
            scope: scope.clone(),
            folder: Folder::of(&options.root, scope)?,
            disk: options.disk.clone(),
            max_chain: options.max_chain,
        })
    }

    pub(crate) fn read(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        let path = self.folder.row(id)?;
        let Some(content) = self.disk.read(&path)? else {
            return Ok(None);
        };
        let mut row: Snapshot = serde_json::from_slice(&content)
            .map_err(|error| Error::data_loss(format!("'{}' is not a snapshot: {error}", path.display())))?;
        let inside = row.state.as_ref().and_then(|state| state.session_id.clone());
        row.session_id = session_of(row.session_id.take(), inside);
        Ok(Some(row))
    }

    /// The session's latest row, for readers.
    ///
    /// A pointer that does not hold may belong to a save that is under way, so it is looked at again, and mended, only
    /// where no save can be: a reader that put it back would hide the new row from the next writer.
    pub(crate) fn latest(&self, session: &SessionId) -> Result<Option<Snapshot>> {
        if let Some(row) = self.pointed_at(session)? {
            return Ok(Some(row));
        }
        match self.disk.lock(&self.folder.lock()) {
            Ok(_lock) => self.latest_locked(session),
            // There is no folder yet, or it may not be written to.
            Err(_) => self.greatest(session),
        }
    }

    /// The session's latest row, for whoever holds the lock: the pointer's if it holds, else the greatest of all, which
    /// mends the pointer.
    fn latest_locked(&self, session: &SessionId) -> Result<Option<Snapshot>> {
        if let Some(row) = self.pointed_at(session)? {
            return Ok(Some(row));
        }
        let latest = self.greatest(session)?;
        if let Some(latest) = &latest {
            // A pointer only saves a scan: failing to mend it costs the next reader another one.
            let _ = self.point(session, &latest.snapshot_id, latest.created_at);
        }
        Ok(latest)
    }

    /// The row that the session's pointer names, if it is there, the session's, and not left behind by a rewind.
    fn pointed_at(&self, session: &SessionId) -> Result<Option<Snapshot>> {
        let pointer: Option<Pointer> = self.read_lenient(&self.folder.pointer(session)?)?;
        // A name that no row can have is as good as no pointer.
        let Some(pointer) = pointer.filter(|pointer| self.folder.row(&pointer.current_snapshot_id).is_ok())
        else {
            return Ok(None);
        };
        let row = self.read(&pointer.current_snapshot_id)?;
        Ok(row.filter(|row| row.session_id.as_ref() == Some(session) && !row.orphaned))
    }

    /// The session's row that sorts last of those that no rewind left behind.
    fn greatest(&self, session: &SessionId) -> Result<Option<Snapshot>> {
        let headers = self.headers(session)?;
        let kept = headers.iter().filter(|header| !header.orphaned);
        let greatest = kept.max_by_key(|header| header.position());
        greatest.map_or(Ok(None), |header| self.read(&header.snapshot_id))
    }

    /// The id of the session's latest row, for whoever holds the lock; a row's place is enough to know, and its conversation
    /// is passed over.
    pub(crate) fn latest_id(&self, session: &SessionId) -> Result<Option<SnapshotId>> {
        let pointer: Option<Pointer> = self.read_lenient(&self.folder.pointer(session)?)?;
        if let Some(pointer) = pointer
            && let Ok(path) = self.folder.row(&pointer.current_snapshot_id)
            && let Some(row) = self.header(&path)?
            && row.session_id.as_ref() == Some(session)
            && !row.orphaned
        {
            return Ok(Some(row.snapshot_id));
        }
        Ok(self.latest_locked(session)?.map(|row| row.snapshot_id))
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
            if path.extension().is_some_and(|extension| extension == "json") {
                headers.extend(self.header(&path)?);
            }
        }
        Ok(headers)
    }

    /// The header of the row in a file; `None` if there is no such file or it is no row.
    fn header(&self, path: &Path) -> Result<Option<Header>> {
        let content = self.disk.read(path)?;
        Ok(content.and_then(|content| Header::of(&self.folder, path, &content)))
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
        let tip = self.latest_locked(session)?;
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
        while let Some(id) = next
            && seen.insert(id.clone())
        {
            // A parent of a name that no row can have is not here.
            let Ok(path) = self.folder.row(&id) else {
                break;
            };
            let Some(ancestor) = self.header(&path)? else {
                break;
            };
            if seen.len() > max_chain {
                self.disk.remove(&path)?;
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
            let Some(header) = self.header(&path)? else {
                continue;
            };
            self.disk.remove(&path)?;
            self.unmark(id);
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
