//! A device in memory that loses all data that was not synced when its power fails.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use everturn_file::{Disk, Version};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The part of the unforced writes that a power loss removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Contents and names.
    Everything,
    /// Contents alone: names may well be written earlier than what they stand for.
    Contents,
}

/// An operation that a device claims to have done, and has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skipped {
    Nothing,
    SyncFile,
    SyncFolder,
}

#[derive(Debug)]
pub(crate) struct Platter {
    skipped: Skipped,
    state: Mutex<State>,
    /// Shared with everyone who holds a lock.
    locks: Arc<()>,
    /// Told of each lock that is refused.
    refused: Notify,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// How many operations are left before the power goes.
    left: usize,
    files: Vec<Content>,
    names: HashMap<PathBuf, usize>,
    kept_names: HashMap<PathBuf, usize>,
    /// The files that were opened by name, whether they existed or not.
    reads: Vec<PathBuf>,
    lists: usize,
    lists_under_lock: usize,
    is_held: bool,
}

#[derive(Debug, Clone, Default)]
struct Content {
    now: Vec<u8>,
    kept: Vec<u8>,
}

impl Platter {
    /// An empty device whose power goes before the operation with that number.
    pub(crate) fn new(skipped: Skipped, dies_before: usize) -> Self {
        let state = State {
            left: dies_before,
            ..State::default()
        };
        Self {
            skipped,
            state: Mutex::new(state),
            locks: Arc::default(),
            refused: Notify::new(),
        }
    }

    /// The device after its power went and came back for good.
    pub(crate) fn restarted(&self, loss: Loss) -> Self {
        let mut state = self.state().clone();
        state.left = usize::MAX;
        for content in &mut state.files {
            content.now.clone_from(&content.kept);
        }
        match loss {
            Loss::Everything => state.names.clone_from(&state.kept_names),
            Loss::Contents => state.kept_names.clone_from(&state.names),
        }
        Self {
            skipped: self.skipped,
            state: Mutex::new(state),
            locks: Arc::default(),
            refused: Notify::new(),
        }
    }

    /// How often a file of that folder was read since this was last asked.
    pub(crate) fn reads_of(&self, folder: &str) -> usize {
        let State { reads, .. } = &mut *self.state();
        let before = reads.len();
        reads.retain(|path| path.parent() != Some(Path::new(folder)));
        before - reads.len()
    }

    /// How often a folder was listed since this was last asked, and how often while a lock was held.
    pub(crate) fn lists(&self) -> (usize, usize) {
        let State {
            lists,
            lists_under_lock,
            ..
        } = &mut *self.state();
        (std::mem::take(lists), std::mem::take(lists_under_lock))
    }

    /// Holds all locks as another process would, or releases them.
    pub(crate) fn hold(&self, is_held: bool) {
        self.state().is_held = is_held;
    }

    /// Waits until a lock was refused because another process holds it.
    pub(crate) async fn refused(&self) {
        self.refused.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The state for one more operation, if there still is power.
    fn powered(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.left = state
            .left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("the power is gone"))?;
        Ok(state)
    }
}

impl State {
    fn file(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Disk for Platter {
    fn create_folder(&self, _: &Path) -> io::Result<()> {
        self.powered().map(|_| ())
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.powered()?;
        state.reads.push(path.to_owned());
        Ok(state.names.get(path).map(|file| state.files[*file].now.clone()))
    }

    /// Not counted: it is a part of a file.
    fn read_start(&self, path: &Path, length: usize) -> io::Result<Vec<u8>> {
        let state = self.powered()?;
        let content = state.names.get(path).map(|file| &state.files[*file].now);
        Ok(content.map_or_else(Vec::new, |content| content[..content.len().min(length)].to_vec()))
    }

    fn version(&self, path: &Path) -> Option<Version> {
        let state = self.powered().ok()?;
        let file = state.file(path).ok()?;
        // Files are never rewritten here, so the number identifies the content.
        Some(Version {
            modified: UNIX_EPOCH,
            changed: UNIX_EPOCH,
            length: state.files[file].now.len() as u64,
            number: file as u64,
        })
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut state = self.powered()?;
        let file = state.files.len();
        state.files.push(Content {
            now: content.to_owned(),
            kept: Vec::new(),
        });
        state.names.insert(path.to_owned(), file);
        Ok(())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.powered()?;
        let file = state.file(path)?;
        if self.skipped != Skipped::SyncFile {
            let content = &mut state.files[file];
            content.kept.clone_from(&content.now);
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.powered()?;
        let file = state.file(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.powered()?;
        if self.skipped != Skipped::SyncFolder {
            let State {
                names, kept_names, ..
            } = &mut *state;
            kept_names.retain(|name, _| name.parent() != Some(path));
            let inside = names.iter().filter(|(name, _)| name.parent() == Some(path));
            kept_names.extend(inside.map(|(name, file)| (name.clone(), *file)));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.powered()?.names.remove(path);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.powered()?;
        state.lists += 1;
        state.lists_under_lock += usize::from(Arc::strong_count(&self.locks) > 1);
        let inside = state.names.keys().filter(|name| name.parent() == Some(path));
        Ok(inside.cloned().collect())
    }

    fn folders(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let state = self.powered()?;
        let folders = state.names.keys().filter_map(|name| name.parent());
        let inside: BTreeSet<&Path> = folders.filter(|folder| folder.parent() == Some(path)).collect();
        Ok(inside.into_iter().map(Path::to_path_buf).collect())
    }

    fn try_lock(&self, _: &Path) -> io::Result<Option<Box<dyn Send>>> {
        if self.powered()?.is_held {
            self.refused.notify_one();
            return Ok(None);
        }
        Ok(Some(Box::new(Arc::clone(&self.locks))))
    }
}
