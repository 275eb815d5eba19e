//! Reading rows, their headers and the pointers to tips.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Detail, Precondition};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result, Status};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::checksum::Seal;
use crate::files::{Files, Lock};
use crate::row::{self, Header};

/// The length of the beginning of a row's file that is searched for the parent, before the whole file is
/// read.
const PARENT_WITHIN: usize = 1024;

/// The number of times that a reader starts over because the session changed meanwhile.
const ATTEMPTS: usize = 16;

/// The file that names a session's tip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pointer {
    pub(crate) current_snapshot_id: SnapshotId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current_created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) updated_at: Option<Timestamp>,
    /// The name of the file that becomes the row; empty if the row existed before the pointer.
    ///
    /// While that file exists, the save has not ended. Afterwards the row exists until it is deleted, and the
    /// pointer is deleted before the row. So if the file and the row are both missing, the row was lost.
    /// Other runtimes omit this field and give no such guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) staged_as: Option<String>,
}

/// The target of a session's pointer.
enum Pointed<T> {
    /// To the session's tip.
    Tip(T),
    /// To no row: there is no pointer, its save has not ended, its row is superseded, or another runtime's
    /// pointer is stale.
    Nowhere,
    /// To a row that existed and is now missing or damaged.
    Lost(Error),
}

/// A row that a pointer names, with its session and whether it is superseded.
type Target<T> = (T, Option<SessionId>, bool);

impl Files {
    /// Reads the row of an id.
    pub(crate) fn read(&self, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        let path = self.folder.row(id)?;
        let Some(content) = self.content(&path)? else {
            return Ok(None);
        };
        let row = row::parse(&path, &content, detail)?;
        if row.snapshot_id != *id {
            let other = format!("it holds snapshot '{}' instead of '{id}'", row.snapshot_id);
            return Err(row::damaged(&path, other));
        }
        Ok(Some(row))
    }

    /// Returns the content of a row's file.
    ///
    /// # Errors
    /// `DATA_LOSS` if the file cannot be that of a row.
    pub(crate) fn content(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        self.disk.read(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => row::damaged(path, error),
            _ => error.into(),
        })
    }

    /// Reads the session's tip, for callers that do not hold the lock and do not wait for it.
    ///
    /// A pointer whose save has not ended is left alone: a reader that repaired it would hide the new row
    /// from the next writer. Other stale pointers are repaired if the lock is free.
    pub(crate) fn latest(&self, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        for attempt in 0..ATTEMPTS {
            let pointer = self.pointer(session)?;
            let target = |id: &SnapshotId| {
                let row = self.read(id, detail)?;
                Ok(row.map(|row| (row.clone(), row.session_id, row.orphaned)))
            };
            match self.follow(session, pointer.as_ref(), target)? {
                Pointed::Tip(row) => return Ok(Some(row)),
                // A save or a deletion may be in progress; then the next attempt finds a consistent state.
                Pointed::Lost(error) if attempt > 1 && self.pointer(session)? == pointer => {
                    return Err(error);
                }
                Pointed::Lost(_) => continue,
                Pointed::Nowhere => {}
            }
            let seen = self.greatest(session)?;
            if pointer.is_none() {
                self.check_scan(session, seen.as_deref())?;
            }
            if pointer.is_none() && seen.is_none() {
                return Ok(None);
            }
            // Nothing is repaired if the folder does not exist or is read-only.
            let lock = self.lock_if_free().ok().flatten();
            let tip = match &lock {
                Some(lock) => self.tip(session, lock)?,
                None if self.pointer(session)? != pointer => continue,
                None => seen,
            };
            let Some(tip) = tip else {
                return Ok(None);
            };
            if let Some(row) = self.read(&tip.snapshot_id, detail)? {
                return Ok(Some(row));
            }
        }
        Err(Error::unavailable(format!(
            "session '{session}' changed whenever it was read: retry"
        )))
    }

    /// Returns the header of the session's tip. A pointer that does not name the tip is repaired.
    ///
    /// # Errors
    /// `DATA_LOSS` if the tip is missing or damaged.
    pub(crate) fn tip(&self, session: &SessionId, _lock: &Lock) -> Result<Option<Arc<Header>>> {
        let pointer = self.pointer(session)?;
        let target = |id: &SnapshotId| {
            let row = self.header(id)?;
            Ok(row.map(|row| (Arc::clone(&row), row.session_id.clone(), row.orphaned)))
        };
        match self.follow(session, pointer.as_ref(), target)? {
            Pointed::Tip(row) => return Ok(Some(row)),
            Pointed::Lost(error) => return Err(error),
            Pointed::Nowhere => {}
        }
        let greatest = self.greatest(session)?;
        if pointer.is_none() {
            self.check_scan(session, greatest.as_deref())?;
        }
        let repaired = match &greatest {
            Some(greatest) => self.repair(session, greatest),
            None => self.unpoint(session, pointer.as_ref()),
        };
        // A pointer only saves a scan: if it cannot be repaired, the next reader scans again.
        if repaired.is_ok()
            && let Some(staged) = pointer.as_ref().and_then(|pointer| self.staged(pointer))
        {
            // The process that wrote the staged file is dead, and no pointer names it.
            let _ = self.disk.remove(&staged);
        }
        Ok(greatest)
    }

    /// Returns the row that a precondition is checked against. `tip` is the session's tip, and `written` the
    /// row that the caller writes.
    pub(crate) fn found(
        &self,
        session: &SessionId,
        precondition: &Precondition,
        written: &SnapshotId,
        tip: Option<&Header>,
    ) -> Result<Option<SnapshotId>> {
        let Some(tip) = tip else {
            return Ok(None);
        };
        let continued = match precondition.on_snapshots() {
            Precondition::None | Precondition::Tip(_) | Precondition::Held { .. } => {
                return Ok(Some(tip.snapshot_id.clone()));
            }
            // Nothing comes after the tip, so it has no successor and no other file is looked at.
            Precondition::Unfollowed {
                snapshot: Some(id), ..
            } if *id == tip.snapshot_id => return Ok(Some(id.clone())),
            Precondition::Unfollowed { snapshot, .. } => snapshot.as_ref(),
        };
        let is_kept = |header: &Header| header.session_id.as_ref() == Some(session) && !header.orphaned;
        let (continued, candidates) = match continued {
            Some(id) => {
                let continued = self.header_in(&self.folder.row(id)?)?;
                let Some(continued) = continued.filter(|header| is_kept(header)) else {
                    return Ok(None);
                };
                (Some(continued), self.headers_after(id)?)
            }
            None => (None, self.all_headers()?),
        };
        let successor = candidates.into_iter().find(|header| {
            is_kept(header)
                && header.snapshot_id != *written
                && precondition.counts(&header.snapshot_id, header.status)
                && continued
                    .as_ref()
                    .is_none_or(|continued| header.position() > continued.position())
        });
        Ok(successor.or(continued).map(|header| header.snapshot_id.clone()))
    }

    fn follow<T>(
        &self,
        session: &SessionId,
        pointer: Option<&Pointer>,
        target: impl FnOnce(&SnapshotId) -> Result<Option<Target<T>>>,
    ) -> Result<Pointed<T>> {
        let Some(pointer) = pointer else {
            return Ok(Pointed::Nowhere);
        };
        let id = &pointer.current_snapshot_id;
        let lost = |why: String| {
            Ok(Pointed::Lost(Error::data_loss(format!(
                "session '{session}' has lost its latest snapshot '{id}': {why}; restore the file from a backup, or delete \
                 the snapshot to continue from the one before"
            ))))
        };
        match target(id) {
            Ok(Some((row, of, orphaned))) if of.as_ref() == Some(session) => Ok(if orphaned {
                Pointed::Nowhere
            } else {
                Pointed::Tip(row)
            }),
            Err(error) if error.status() == Status::DataLoss => lost(error.message().to_owned()),
            Err(error) => Err(error),
            Ok(_) if pointer.staged_as.is_none() => Ok(Pointed::Nowhere),
            Ok(Some((_, of, _))) => {
                let of = of.map_or_else(|| "no session".to_owned(), |of| format!("session '{of}'"));
                lost(format!("its file belongs to {of}"))
            }
            Ok(None) => match self.staged(pointer) {
                Some(staged) if self.disk.read(&staged)?.is_some() => Ok(Pointed::Nowhere),
                _ => lost(format!("'{}' is missing", self.folder.row(id)?.display())),
            },
        }
    }

    /// Returns the file that the save of a pointer turns into the row.
    fn staged(&self, pointer: &Pointer) -> Option<PathBuf> {
        let name = pointer.staged_as.as_deref().filter(|name| !name.is_empty())?;
        // This store writes no names that contain a path.
        let is_name = Path::new(name).file_name() == Some(name.as_ref());
        is_name.then(|| self.folder.path().join(name))
    }

    /// Returns the session's pointer, unless no row can have the id in it.
    pub(crate) fn pointer(&self, session: &SessionId) -> Result<Option<Pointer>> {
        let pointer = self.pointer_in(&self.folder.pointer(session)?)?;
        Ok(pointer.filter(|pointer| self.folder.row(&pointer.current_snapshot_id).is_ok()))
    }

    /// Returns whether the session has a pointer, which may be damaged.
    pub(crate) fn has_pointer(&self, session: &SessionId) -> Result<bool> {
        Ok(self.pointer_content(session)?.is_some())
    }

    /// Returns the remaining bytes of a session's damaged pointer.
    pub(crate) fn damaged_pointer(&self, session: &SessionId) -> Result<Option<Vec<u8>>> {
        Ok(match self.pointer(session)? {
            Some(_) => None,
            None => self.pointer_content(session)?,
        })
    }

    /// Returns the content of a session's pointer; empty if the file cannot be a pointer.
    fn pointer_content(&self, session: &SessionId) -> Result<Option<Vec<u8>>> {
        match self.disk.read(&self.folder.pointer(session)?) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(Vec::new())),
            content => Ok(content?),
        }
    }

    /// Checks that a scan has not passed over the tip of a session whose pointer is missing or damaged, where
    /// `found` is the last row that was found: a row that is unreadable or missing may be the tip.
    ///
    /// # Errors
    /// `DATA_LOSS` if there may be such a row.
    fn check_scan(&self, session: &SessionId, found: Option<&Header>) -> Result<()> {
        let remains = self.damaged_pointer(session)?;
        if remains.is_none() && found.is_none() {
            return Ok(());
        }
        let pointer = self.folder.pointer(session)?;
        for (path, content) in self.unreadable()? {
            let was_row = match Seal::of(&content) {
                Seal::Broken => true,
                // Files of others may be in the folder.
                Seal::Absent => remains.is_some(),
                // The content is intact, under another name.
                Seal::Whole => false,
            };
            if was_row && row::session_in(&content).is_none_or(|of| of == *session) {
                let id = path.file_stem().unwrap_or_default().to_string_lossy();
                let state = if remains.is_some() { "damaged" } else { "missing" };
                return Err(Error::data_loss(format!(
                    "session '{session}' may have lost its latest snapshot '{id}': '{}' cannot be read, and the pointer '{}' \
                     is {state}; restore both from a backup, or delete the snapshot to continue from the one before",
                    path.display(),
                    pointer.display(),
                )));
            }
        }
        match remains {
            Some(remains) if !self.is_last(found, &remains)? => Err(Error::data_loss(format!(
                "session '{session}' may have lost its latest snapshot: the pointer '{}' is damaged, and names no snapshot that \
                 is left; restore it, and the snapshot that it names, from a backup, or remove it to continue from the \
                 last snapshot that is left",
                pointer.display(),
            ))),
            _ => Ok(()),
        }
    }

    /// Returns whether the last row that was found is the one that a damaged pointer named. A pointer names
    /// its row three times, so the majority of the remaining names decides.
    fn is_last(&self, found: Option<&Header>, remains: &[u8]) -> Result<bool> {
        let Some(found) = found else {
            return Ok(false);
        };
        let id: Option<SnapshotId> = row::field_in(remains, "currentSnapshotId");
        let created_at: Option<Timestamp> = row::field_in(remains, "currentCreatedAt");
        let staged: Option<String> =
            row::field_in(remains, "stagedAs").filter(|name: &String| !name.is_empty());
        let row = self.folder.row(&found.snapshot_id)?;
        let name = row.file_name().unwrap_or_default().to_string_lossy();
        let named = [
            id.map(|id| id == found.snapshot_id),
            created_at.map(|at| at == found.created_at),
            staged.map(|staged| staged.starts_with(&*name)),
        ];
        let count = |is_found| named.iter().filter(|named| **named == Some(is_found)).count();
        if count(true) > count(false) {
            return Ok(true);
        }
        // Other runtimes write neither checksums nor the pointer before the row.
        let is_own = Seal::of(remains) == Seal::Broken
            || self
                .content(&row)?
                .is_some_and(|content| Seal::of(&content) == Seal::Whole);
        Ok(!is_own)
    }

    /// Returns the files of the scope that are named like rows and cannot be read as rows, with their
    /// contents.
    pub(crate) fn unreadable(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut found = Vec::new();
        for path in self.disk.list(self.folder.path())? {
            if path.extension().is_none_or(|end| end != "json") || self.header_in(&path)?.is_some() {
                continue;
            }
            match self.disk.read(&path) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => found.push((path, Vec::new())),
                // A missing file was deleted meanwhile.
                content => found.extend(content?.map(|content| (path, content))),
            }
        }
        Ok(found)
    }

    /// Returns the pointer in a file; `None` if it is damaged. The tip is then found by scanning.
    pub(crate) fn pointer_in(&self, path: &Path) -> Result<Option<Pointer>> {
        let content = match self.disk.read(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            content => content?,
        };
        let whole = content.filter(|content| Seal::of(content) != Seal::Broken);
        Ok(whole.and_then(|content| serde_json::from_slice(&content).ok()))
    }

    /// Returns the header of the session's last row that is not orphaned, by scanning.
    fn greatest(&self, session: &SessionId) -> Result<Option<Arc<Header>>> {
        let mut kept = self.headers(session)?;
        kept.retain(|header| !header.orphaned);
        Ok(kept
            .into_iter()
            .max_by(|one, other| one.position().cmp(&other.position())))
    }

    /// Returns the headers of a session's rows, unordered. Files that are not snapshots are skipped.
    pub(crate) fn headers(&self, session: &SessionId) -> Result<Vec<Arc<Header>>> {
        let parse = |path: &Path, content: &[u8]| Header::parse(&self.folder, path, content);
        // A row never moves to another session.
        let is_other = |header: &Header| header.session_id.as_ref().is_some_and(|of| of != session);
        let (disk, folder) = (&*self.disk, self.folder.path());
        let mut headers = self.headers.read_all_but(disk, folder, is_other, parse)?;
        headers.retain(|header| header.session_id.as_ref() == Some(session));
        Ok(headers)
    }

    /// Returns the headers of the scope's rows, unordered.
    pub(crate) fn all_headers(&self) -> Result<Vec<Arc<Header>>> {
        self.headers_of(|_| true)
    }

    /// Returns the headers of the rows that name this one as their parent, unordered.
    pub(crate) fn headers_after(&self, id: &SnapshotId) -> Result<Vec<Arc<Header>>> {
        let mut headers = self.headers_of(|path| match self.disk.read_start(path, PARENT_WITHIN) {
            Ok(start) => row::parent_in(&start).is_none_or(|parent| parent == *id),
            // Reading the whole file reports the error.
            Err(_) => true,
        })?;
        headers.retain(|header| header.parent_id.as_ref() == Some(id));
        Ok(headers)
    }

    /// Returns the cached headers of the scope's rows, and reads those of the files that `is_wanted` selects.
    fn headers_of(&self, is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<Arc<Header>>> {
        let parse = |path: &Path, content: &[u8]| Header::parse(&self.folder, path, content);
        let (disk, folder) = (&*self.disk, self.folder.path());
        Ok(self.headers.read_all(disk, folder, is_wanted, parse)?)
    }

    /// Returns the header of the row with an id.
    ///
    /// # Errors
    /// `DATA_LOSS` if the row's file is not a snapshot.
    pub(crate) fn header(&self, id: &SnapshotId) -> Result<Option<Arc<Header>>> {
        if let Some(header) = self.header_in(&self.folder.row(id)?)? {
            return Ok(Some(header));
        }
        Ok(self
            .read(id, Detail::Metadata)?
            .map(|row| Arc::new(Header::of(&row))))
    }

    /// Returns the header in a file; `None` if there is no such file or it is not a row.
    pub(crate) fn header_in(&self, path: &Path) -> Result<Option<Arc<Header>>> {
        let parse = |path: &Path, content: &[u8]| Header::parse(&self.folder, path, content);
        Ok(self.headers.read(&*self.disk, path, parse)?)
    }

    /// Removes the pointer of a session that has no tip.
    fn unpoint(&self, session: &SessionId, pointer: Option<&Pointer>) -> Result<()> {
        if pointer.is_some() {
            self.disk.remove(&self.folder.pointer(session)?)?;
            self.disk.sync_folder(&self.folder.pointers())?;
        }
        Ok(())
    }

    /// Points the session at a row that exists.
    fn repair(&self, session: &SessionId, row: &Header) -> Result<()> {
        // The row's name must be on the device before the pointer asserts that the row exists.
        self.disk.sync_folder(self.folder.path())?;
        let pointer = Pointer {
            current_snapshot_id: row.snapshot_id.clone(),
            current_created_at: Some(row.created_at),
            updated_at: Some(Timestamp::now()),
            staged_as: Some(String::new()),
        };
        self.put(&self.folder.pointer(session)?, &pointer)
    }
}
