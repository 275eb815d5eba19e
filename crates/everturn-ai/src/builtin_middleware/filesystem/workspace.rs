//! The directory that the tools work in, and the rules for opening what is in it.
//!
//! Every path is resolved by `cap-std` below one open directory: `..` and symbolic links are followed as long
//! as they stay inside, and no path can name anything outside. The operations block, so they run on threads
//! that may block.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use cap_std::time::SystemTime;
use everturn_core::{Error, Result, Status};
use parking_lot::{Mutex, MutexGuard};

use super::path::WorkspacePath;
use super::read::LineRange;

/// The most bytes that one read shows, whether of a whole file or of some of its lines.
pub(super) const MAX_SHOWN_BYTES: u64 = 256 * 1024;

/// The largest file that is opened.
pub(super) const MAX_FILE_BYTES: u64 = 10 * 1024 * 1024;

/// An open root directory and the files that the model has seen in it.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) root: Dir,
    seen: Mutex<SeenFiles>,
}

/// An open file, with its state when it was opened.
pub(super) struct OpenFile {
    file: File,
    pub(super) stamp: Stamp,
    size: u64,
}

impl Workspace {
    /// Opens a root directory.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a directory that can be opened.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let root = Dir::open_ambient_dir(root, ambient_authority()).map_err(|error| {
            Error::invalid_argument(format!(
                "cannot open the root directory '{}': {error}",
                root.display()
            ))
        })?;
        Ok(Self {
            root,
            seen: Mutex::default(),
        })
    }

    /// Returns the files that the model has seen. A change to a file holds this guard from checking the
    /// file's state until the file is written.
    pub(super) fn seen(&self) -> MutexGuard<'_, SeenFiles> {
        self.seen.lock()
    }

    /// Opens a regular file; returns `None` if the path does not exist.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the path is not a file, `PERMISSION_DENIED` if it is outside the root.
    pub(super) fn open_file(&self, path: &WorkspacePath, options: &OpenOptions) -> Result<Option<OpenFile>> {
        let failed = |error| failure(path, &error);
        // The kind is checked before opening because opening a pipe waits for its other end.
        let kind = match self.root.metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map_err(failed)?.file_type(),
        };
        if kind.is_dir() {
            return Err(Error::invalid_argument(format!(
                "'{path}' is a directory; list_files shows what is in it"
            )));
        }
        if !kind.is_file() {
            return Err(Error::invalid_argument(format!("'{path}' is not a regular file")));
        }
        let file = self
            .root
            .open_with(path, options)
            .and_then(OpenFile::new)
            .map_err(failed)?;
        Ok(Some(file))
    }

    /// Opens a file that must exist.
    ///
    /// # Errors
    /// As [`Workspace::open_file`]; `NOT_FOUND` if it does not exist.
    pub(super) fn existing_file(&self, path: &WorkspacePath, options: &OpenOptions) -> Result<OpenFile> {
        self.open_file(path, options)?
            .ok_or_else(|| Error::not_found(format!("there is no file '{path}'")))
    }
}

impl OpenFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            stamp: Stamp::from(&metadata),
            size: metadata.len(),
            file,
        })
    }

    /// Rejects a file of more than `limit` bytes.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` with `advice`.
    pub(super) fn check_size(&self, path: &WorkspacePath, limit: u64, advice: &str) -> Result<()> {
        if self.size <= limit {
            return Ok(());
        }
        let size = self.size;
        Err(Error::resource_exhausted(format!(
            "'{path}' has {size} bytes and the limit is {limit}; {advice}"
        )))
    }

    /// Reads all bytes that the file had when it was opened.
    pub(super) fn bytes(&mut self, path: &WorkspacePath) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.file)
            .take(self.size)
            .read_to_end(&mut bytes)
            .map_err(|error| failure(path, &error))?;
        Ok(bytes)
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the file is not text.
    pub(super) fn text(&mut self, path: &WorkspacePath) -> Result<String> {
        let text = String::from_utf8(self.bytes(path)?)
            .ok()
            .filter(|text| !text.contains('\0'));
        text.ok_or_else(|| Error::invalid_argument(format!("'{path}' is not a text file in UTF-8")))
    }

    /// Replaces the whole content of the file and returns the file's new state.
    pub(super) fn replace(mut self, path: &WorkspacePath, content: &str) -> Result<Stamp> {
        let mut replace = || {
            self.file.rewind()?;
            self.file.set_len(0)?;
            self.file.write_all(content.as_bytes())?;
            self.file.metadata()
        };
        replace()
            .map(|metadata| Stamp::from(&metadata))
            .map_err(|error| failure(path, &error))
    }
}

/// Describes an operating system's error for a model. The text names the path below the root, never the root.
pub(super) fn failure(path: impl Display, error: &io::Error) -> Error {
    let status = match error.kind() {
        ErrorKind::NotFound => Status::NotFound,
        ErrorKind::PermissionDenied => Status::PermissionDenied,
        ErrorKind::AlreadyExists => Status::AlreadyExists,
        ErrorKind::InvalidInput | ErrorKind::InvalidFilename => Status::InvalidArgument,
        _ => Status::FailedPrecondition,
    };
    Error::new(status, format!("'{path}': {error}"))
}

/// The number of files that are remembered; the oldest is removed first.
const CAPACITY: usize = 200;

/// The state of a file, as far as it is known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    size: u64,
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            size: metadata.len(),
        }
    }
}

/// A file that the model has read or written: its state then, and the lines that were shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sighting {
    /// The file's state at that time.
    pub(super) stamp: Stamp,
    /// The lines that the conversation holds; `None` if the file was written since, or is an image.
    pub(super) shown: Option<LineRange>,
}

/// The files that the model has seen in this generate call.
#[derive(Debug, Default)]
pub(super) struct SeenFiles {
    sightings: HashMap<WorkspacePath, Sighting>,
    order: VecDeque<WorkspacePath>,
}

impl SeenFiles {
    pub(super) fn get(&self, path: &WorkspacePath) -> Option<Sighting> {
        self.sightings.get(path).copied()
    }

    /// Records a sighting. It replaces an earlier one of the same file, which keeps its position in the
    /// order.
    pub(super) fn record(&mut self, path: &WorkspacePath, sighting: Sighting) {
        if self.sightings.insert(path.clone(), sighting).is_some() {
            return;
        }
        self.order.push_back(path.clone());
        if self.order.len() > CAPACITY
            && let Some(first) = self.order.pop_front()
        {
            self.sightings.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(n: usize) -> WorkspacePath {
        WorkspacePath::file(&format!("{n}.txt")).unwrap()
    }

    fn sighting(size: u64) -> Sighting {
        Sighting {
            stamp: Stamp { modified: None, size },
            shown: None,
        }
    }

    #[test]
    fn the_file_seen_first_is_forgotten_first() {
        let mut seen = SeenFiles::default();

        for n in 0..=CAPACITY {
            seen.record(&path(n), sighting(0));
        }

        assert_eq!(seen.get(&path(0)), None);
        assert!(seen.get(&path(1)).is_some());
        assert_eq!(seen.sightings.len(), CAPACITY);
    }

    #[test]
    fn seeing_a_file_again_updates_it_and_does_not_make_it_younger() {
        let mut seen = SeenFiles::default();

        for n in 0..CAPACITY {
            seen.record(&path(n), sighting(0));
        }
        seen.record(&path(0), sighting(7));
        assert_eq!(seen.get(&path(0)), Some(sighting(7)));
        seen.record(&path(CAPACITY), sighting(0));

        assert_eq!(seen.get(&path(0)), None);
        assert!(seen.get(&path(1)).is_some());
    }
}
