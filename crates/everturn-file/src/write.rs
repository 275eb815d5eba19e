//! Writing: one atomic read-modify-write of a row, and files that are staged before they get their names.
//!
//! The scope's lock is held as briefly as possible, because every writer waits for it. A row is computed and forced to the
//! device before the lock is taken, and computed again if the file has changed by then. The row gets its name under the
//! lock, and the name is forced to the device afterwards. A writer that builds on the row in between forces the same folder
//! before it returns.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::store::{Detail, Mutation, Precondition, admit};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};
use serde::Serialize;
use uuid::Uuid;

use crate::disk::Disk;
use crate::files::Files;
use crate::pending;
use crate::row;
use crate::watch::Watchers;

/// How deeply a file may be nested. The parser stops at 128 levels, and the innermost one may be empty and written without
/// a line of its own.
const MAX_DEPTH: usize = 126;

/// The result of a mutation, and the file content that it was computed from.
struct Draft {
    found: Option<Vec<u8>>,
    before: Option<Snapshot>,
    /// `None` if there is nothing to write.
    after: Option<(Snapshot, Staged)>,
}

impl Files {
    /// Reads a row, applies `mutation` and writes the result, atomically. Returns the written row, or `None` if the mutation
    /// wrote nothing.
    pub(crate) fn save(
        &self,
        id: &SnapshotId,
        precondition: &Precondition,
        mutation: &Mutation,
        watchers: &Watchers,
    ) -> Result<Option<Snapshot>> {
        let path = self.folder.row(id)?;
        self.disk.create_folder(&self.folder.pointers())?;
        let draft = self.draft(id, &path, mutation);

        let lock = self.lock()?;
        let draft = match draft {
            Ok(draft) if self.disk.read(&path)? == draft.found => draft,
            // The file changed since; an error of the mutation may not hold any more either.
            _ => self.draft(id, &path, mutation)?,
        };
        let Some((row, staged)) = draft.after else {
            return Ok(None);
        };
        match &draft.before {
            None => self.advance(&row, precondition)?,
            Some(before) => self.change(before, &row, precondition)?,
        }
        let (begins, ends) = pending::changes(draft.before.as_ref(), &row);
        if begins {
            self.mark(id)?;
        }
        staged.publish(&path)?;
        // Under the lock, so that watchers hear of changes in their order.
        if draft.before.is_none_or(|before| before.status != row.status) {
            watchers.tell(&self.folder, id, Some(row.status));
        }
        drop(lock);

        self.disk.sync_folder(self.folder.path())?;
        if ends {
            // A marker that stays is removed when it is next read.
            let _ = self.unmark_stale(id);
        }
        self.prune(&row)?;
        Ok(Some(row))
    }

    fn draft(&self, id: &SnapshotId, path: &Path, mutation: &Mutation) -> Result<Draft> {
        let found = self.disk.read(path)?;
        let before = found
            .as_deref()
            .map(|content| row::parse(path, content, Detail::Whole));
        let before = before.transpose()?;
        let after = match mutation.apply(before.as_ref())? {
            Some(row) => {
                let row = admit(id, before.as_ref(), row)?;
                let staged = Staged::beside(&self.disk, path, &encode(&row)?)?;
                Some((row, staged))
            }
            None => None,
        };
        Ok(Draft { found, before, after })
    }

    /// Moves the session's pointer to a new row if the row becomes the tip.
    ///
    /// The pointer is written before the row. If the process dies in between, the pointer names a row that does not exist,
    /// and the next look-up finds the tip by scanning. In the other order the row could exist, and be built upon, while no
    /// look-up by session ever finds it.
    fn advance(&self, row: &Snapshot, precondition: &Precondition) -> Result<()> {
        let Some(session) = &row.session_id else {
            return Ok(());
        };
        self.check(session, row, precondition)?;
        let tip = self.tip(session)?;
        if !row.orphaned && tip.is_none_or(|tip| row.position() > tip.position()) {
            self.point(session, &row.snapshot_id, row.created_at)?;
        }
        Ok(())
    }

    /// Prepares for rewriting an existing row. If the rewrite orphans or recovers the row, the session's pointer is removed and
    /// the next look-up finds the tip by scanning.
    fn change(&self, before: &Snapshot, row: &Snapshot, precondition: &Precondition) -> Result<()> {
        let Some(session) = &row.session_id else {
            return Ok(());
        };
        self.check(session, row, precondition)?;
        if before.orphaned == row.orphaned {
            return Ok(());
        }
        let pointer = self.folder.pointer(session)?;
        if self.disk.read(&pointer)?.is_some() {
            self.disk.remove(&pointer)?;
        }
        Ok(())
    }

    fn check(&self, session: &SessionId, row: &Snapshot, precondition: &Precondition) -> Result<()> {
        if *precondition == Precondition::None {
            return Ok(());
        }
        let found = self.found(session, precondition, &row.snapshot_id)?;
        precondition.check(session, found.as_ref())
    }

    /// Deletes the ancestors of a row beyond the newest `max_chain` snapshots, counted from the row.
    fn prune(&self, row: &Snapshot) -> Result<()> {
        let Some(max_chain) = self.max_chain else {
            return Ok(());
        };
        let _lock = self.lock()?;
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
            if seen.len() > max_chain {
                self.remove(&path)?;
            }
            next.clone_from(&ancestor.parent_id);
        }
        Ok(())
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

/// A file whose content is on the device under a temporary name. It is removed on drop unless it was published.
#[derive(Debug)]
pub(crate) struct Staged {
    disk: Arc<dyn Disk>,
    temporary: PathBuf,
    is_published: bool,
}

impl Staged {
    /// Writes `content` to a temporary file beside `path`.
    pub(crate) fn beside(disk: &Arc<dyn Disk>, path: &Path, content: &[u8]) -> Result<Self> {
        let staged = Self {
            disk: Arc::clone(disk),
            temporary: temporary_name(path),
            is_published: false,
        };
        let written = disk.write(&staged.temporary, content);
        written
            .and_then(|()| disk.sync_file(&staged.temporary))
            .map_err(|error| unwritten(path, error))?;
        Ok(staged)
    }

    /// Renames the file to `path`, atomically. The name is durable once the folder is forced to the device.
    pub(crate) fn publish(mut self, path: &Path) -> Result<()> {
        let renamed = self.disk.rename(&self.temporary, path);
        renamed.map_err(|error| unwritten(path, error))?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_published {
            // Best effort: readers ignore temporary files.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

fn unwritten(path: &Path, error: io::Error) -> Error {
    Error::unavailable(format!("cannot write '{}': {error}", path.display())).with_source(error)
}

/// Returns a temporary name beside `path`, which no reader looks for.
pub(crate) fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", Uuid::new_v4().simple()));
    path.with_file_name(name)
}

/// Serialises a document as the content of a file.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is nested too deeply to be read back.
pub(crate) fn encode<T: Serialize>(document: &T) -> Result<Vec<u8>> {
    let content = serde_json::to_vec_pretty(document)?;
    if depth(&content) > MAX_DEPTH {
        return Err(Error::invalid_argument(format!(
            "a value is nested deeper than {MAX_DEPTH} levels, which cannot be stored; flatten it"
        )));
    }
    Ok(content)
}

/// Counts the nesting of a document from its indentation, two spaces per level. Line breaks inside strings are escaped.
fn depth(content: &[u8]) -> usize {
    let lines = content.split(|byte| *byte == b'\n');
    let indents = lines.map(|line| line.iter().take_while(|byte| **byte == b' ').count());
    indents.max().unwrap_or(0) / 2
}
