//! Writing: one atomic read-modify-write of a row, and files that are staged before they get their names.
//!
//! The scope's lock is held as briefly as possible, because every writer waits for it. A row and the pointer
//! to it are computed and forced to the device before the lock is taken. If the row has changed by then, the
//! lock is released and they are computed again. They get their names under the lock, the pointer first. The
//! row's name is forced to the device afterwards; a writer that builds on the row in between forces the same
//! folder before it returns.
//!
//! The pointer names the staged file of its row. So a reader that finds a pointer without its row can
//! distinguish an unfinished save, whose staged file still exists, from a lost row.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Detail, Mutation, Precondition, admit};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::checksum;
use crate::disk::{Disk, MAX_FILE};
use crate::files::{Files, Lock};
use crate::pending;
use crate::read::Pointer;
use crate::row::{self, Header};
use crate::watch::Watchers;

/// How deeply a file may be nested. The parser stops at 128 levels, and the innermost one may be empty and
/// written on the same line.
const MAX_DEPTH: usize = 126;

/// The result of a mutation, and the file content that it was computed from.
pub(crate) struct Draft {
    found: Option<Vec<u8>>,
    before: Option<Snapshot>,
    /// `None` if there is nothing to write.
    after: Option<After>,
}

/// A row to write, on the device under a temporary name.
struct After {
    row: Snapshot,
    staged: Staged,
    /// The pointer to the row, if the row is new and may become the tip.
    pointer: Option<Staged>,
    /// Whether the row is new, and its session had neither a pointer nor rows.
    begins_session: bool,
}

/// The content of the file that holds a tenant's readable name.
#[derive(Serialize, Deserialize)]
pub(crate) struct TenantName {
    pub(crate) tenant: String,
}

/// The outcome of publishing a draft.
pub(crate) enum Published {
    /// The row was written; `None` if there was nothing to write.
    Done(Option<Box<Saved>>),
    /// The row has changed since the draft was made. The lock is released, and the place in the queue is
    /// kept.
    Stale(OwnedMutexGuard<()>),
}

/// A row that was written.
pub(crate) struct Saved {
    pub(crate) row: Snapshot,
    /// Whether the row was pending and is not any more, so that its marker is stale.
    pub(crate) ends: bool,
}

impl Files {
    /// Computes the row to write from the stored one, and stages it.
    pub(crate) fn draft(&self, id: &SnapshotId, mutation: &Mutation) -> Result<Draft> {
        let path = self.folder.row(id)?;
        let found = self.content(&path)?;
        let before = match &found {
            Some(content) => Some(row::parse(&path, content, Detail::Whole)?),
            None => None,
        };
        let after = match mutation.apply(before.as_ref())? {
            Some(row) => Some(self.stage(&path, before.as_ref(), admit(id, before.as_ref(), row)?)?),
            None => None,
        };
        Ok(Draft { found, before, after })
    }

    fn stage(&self, path: &Path, before: Option<&Snapshot>, row: Snapshot) -> Result<After> {
        let staged = Staged::beside(&self.disk, path, &encode(&row)?)?;
        let pointer = match &row.session_id {
            Some(session) if before.is_none() && !row.orphaned => {
                // The staged name must be on the device before a pointer refers to it.
                self.disk.sync_folder(self.folder.path())?;
                let pointer = Pointer {
                    current_snapshot_id: row.snapshot_id.clone(),
                    current_created_at: Some(row.created_at),
                    updated_at: Some(Timestamp::now()),
                    staged_as: Some(staged.name()),
                };
                let path = self.folder.pointer(session)?;
                Some(Staged::beside(&self.disk, &path, &encode(&pointer)?)?)
            }
            _ => None,
        };
        if pending::changes(before, &row).0 {
            self.mark(&row.snapshot_id)?;
        }
        // Determined before the lock is taken, because the scope may have many rows.
        let begins_session = match &row.session_id {
            Some(session) if before.is_none() => {
                !self.has_pointer(session)? && self.headers(session)?.is_empty()
            }
            _ => false,
        };
        Ok(After {
            row,
            staged,
            pointer,
            begins_session,
        })
    }

    /// Writes a draft, atomically, if the stored row is still the one that it was computed from.
    pub(crate) fn publish(
        &self,
        id: &SnapshotId,
        draft: Draft,
        precondition: &Precondition,
        watchers: &Watchers,
        lock: Lock,
    ) -> Result<Published> {
        let Some(After {
            row,
            mut staged,
            pointer,
            begins_session,
        }) = draft.after
        else {
            return Ok(Published::Done(None));
        };
        let path = self.folder.row(id)?;
        if self.content(&path)? != draft.found {
            return Ok(Published::Stale(lock.release()));
        }
        let is_repointed = match &draft.before {
            None => {
                let tip = match &row.session_id {
                    // Since then, a row of this session would have come with a pointer.
                    Some(session) if begins_session && !self.has_pointer(session)? => None,
                    Some(session) => self.tip(session, &lock)?,
                    None => None,
                };
                self.advance(&row, &mut staged, pointer, precondition, tip.as_deref())?;
                false
            }
            Some(before) => self.change(before, &row, precondition, &lock)?,
        };
        let (begins, ends) = pending::changes(draft.before.as_ref(), &row);
        if begins && !self.is_marked(id)? {
            // Another process has removed the marker as stale meanwhile.
            self.mark(id)?;
        }
        staged.publish(&path)?;
        self.headers.learn(&path, Header::of(&row));
        // Under the lock, so that watchers receive changes in their order.
        if draft.before.is_none_or(|before| before.status != row.status) {
            watchers.report(&self.folder, id, Some(row.status));
        }
        if let Some(session) = row.session_id.as_ref().filter(|_| is_repointed) {
            // If the pointer cannot be written, the next look-up scans.
            let _ = self.tip(session, &lock);
        }
        drop(lock);

        self.disk.sync_folder(self.folder.path())?;
        Ok(Published::Done(Some(Box::new(Saved { row, ends }))))
    }

    /// Moves the session's pointer to a new row if the row becomes the tip.
    ///
    /// The pointer is written before the row. If the process dies in between, the pointer names a row that
    /// does not exist, and the next look-up finds the tip by scanning. In the other order the row could
    /// exist, and be built upon, while no look-up by session ever finds it.
    fn advance(
        &self,
        row: &Snapshot,
        staged: &mut Staged,
        pointer: Option<Staged>,
        precondition: &Precondition,
        tip: Option<&Header>,
    ) -> Result<()> {
        let Some(session) = &row.session_id else {
            return Ok(());
        };
        self.check(session, row, precondition, tip)?;
        if let Some(tenant) = self.scope.tenant().filter(|_| tip.is_none())
            && self.disk.read(&self.folder.tenant())?.is_none()
        {
            self.put(
                &self.folder.tenant(),
                &TenantName {
                    tenant: tenant.into(),
                },
            )?;
        }
        if let Some(pointer) = pointer
            && tip.is_none_or(|tip| row.position() > tip.position())
        {
            // If the save fails from here on, the staged file shows that it did not end.
            staged.is_kept = true;
            pointer.publish(&self.folder.pointer(session)?)?;
            self.disk.sync_folder(&self.folder.pointers())?;
        }
        Ok(())
    }

    /// Prepares for rewriting an existing row. If the rewrite supersedes or recovers the row, the session's
    /// pointer is removed. Returns whether a new one is needed.
    fn change(
        &self,
        before: &Snapshot,
        row: &Snapshot,
        precondition: &Precondition,
        lock: &Lock,
    ) -> Result<bool> {
        let Some(session) = &row.session_id else {
            return Ok(false);
        };
        if *precondition != Precondition::None {
            let tip = self.tip(session, lock)?;
            self.check(session, row, precondition, tip.as_deref())?;
        }
        if before.orphaned == row.orphaned {
            return Ok(false);
        }
        self.disk.remove(&self.folder.pointer(session)?)?;
        Ok(true)
    }

    fn check(
        &self,
        session: &SessionId,
        row: &Snapshot,
        precondition: &Precondition,
        tip: Option<&Header>,
    ) -> Result<()> {
        if *precondition == Precondition::None {
            return Ok(());
        }
        let found = self.found(session, precondition, &row.snapshot_id, tip)?;
        precondition.check(session, found.as_ref())
    }

    /// Deletes the ancestors of a row beyond the newest `max_chain` snapshots, counted from the row.
    pub(crate) fn prune(&self, row: &Snapshot, max_chain: usize, _lock: &Lock) -> Result<()> {
        let mut seen = std::collections::HashSet::from([row.snapshot_id.clone()]);
        let mut next = row.parent_id.clone();
        while let Some(id) = &next
            && seen.insert(id.clone())
        {
            // A row cannot have such a name, so the parent is not in this store.
            let Ok(path) = self.folder.row(id) else {
                break;
            };
            let Some(ancestor) = self.header_in(&path)? else {
                break;
            };
            // An ancestor with a later creation time than its successors may be the tip.
            if seen.len() > max_chain && !self.is_pointed_at(&ancestor)? {
                self.remove(&path)?;
            }
            next.clone_from(&ancestor.parent_id);
        }
        Ok(())
    }

    fn is_pointed_at(&self, row: &Header) -> Result<bool> {
        let Some(session) = &row.session_id else {
            return Ok(false);
        };
        let pointer = self.pointer(session)?;
        Ok(pointer.is_some_and(|pointer| pointer.current_snapshot_id == row.snapshot_id))
    }

    /// Writes a file atomically and forces it to the device.
    pub(crate) fn put<T: Serialize>(&self, path: &Path, document: &T) -> Result<()> {
        Staged::beside(&self.disk, path, &encode(document)?)?.publish(path)?;
        if let Some(folder) = path.parent() {
            self.disk.sync_folder(folder)?;
        }
        Ok(())
    }
}

/// A file whose content is on the device under a temporary name. It is removed on drop unless it was
/// published or is kept.
#[derive(Debug)]
pub(crate) struct Staged {
    disk: Arc<dyn Disk>,
    temporary: PathBuf,
    is_kept: bool,
}

impl Staged {
    /// Writes `content` to a temporary file in the folder of `path`.
    pub(crate) fn beside(disk: &Arc<dyn Disk>, path: &Path, content: &[u8]) -> Result<Self> {
        let staged = Self {
            disk: Arc::clone(disk),
            temporary: temporary_name(path),
            is_kept: false,
        };
        let written = disk.write(&staged.temporary, content);
        written
            .and_then(|()| disk.sync_file(&staged.temporary))
            .map_err(|error| unwritten(path, error))?;
        Ok(staged)
    }

    /// Returns the file's temporary name.
    fn name(&self) -> String {
        let name = self.temporary.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Renames the file to `path`, atomically. The name is durable once the folder is forced to the device.
    pub(crate) fn publish(mut self, path: &Path) -> Result<()> {
        let renamed = self.disk.rename(&self.temporary, path);
        renamed.map_err(|error| unwritten(path, error))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_kept {
            // Best effort: readers ignore temporary files.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

fn unwritten(path: &Path, error: io::Error) -> Error {
    Error::unavailable(format!("cannot write '{}': {error}", path.display())).with_source(error)
}

/// Returns a temporary name in the folder of `path`, which readers ignore.
pub(crate) fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", Uuid::new_v4().simple()));
    path.with_file_name(name)
}

/// Serialises a document as the content of a file, with its checksum.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is nested too deeply, or too large, to be read back.
pub(crate) fn encode<T: Serialize>(document: &T) -> Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(document)?;
    if depth(&text) > MAX_DEPTH {
        return Err(Error::invalid_argument(format!(
            "a value is nested deeper than {MAX_DEPTH} levels, which cannot be stored; flatten it"
        )));
    }
    let mut content = text.into_bytes();
    checksum::seal(&mut content);
    if content.len() as u64 > MAX_FILE {
        return Err(Error::invalid_argument(format!(
            "a snapshot of {} bytes cannot be stored as a file: {MAX_FILE} are allowed; keep the session in a database",
            content.len()
        )));
    }
    Ok(content)
}

/// Counts the nesting of a document from its indentation, two spaces per level. Line breaks inside strings
/// are escaped.
fn depth(text: &str) -> usize {
    let indents = text
        .split('\n')
        .map(|line| line.bytes().take_while(|byte| *byte == b' ').count());
    indents.max().unwrap_or(0) / 2
}
