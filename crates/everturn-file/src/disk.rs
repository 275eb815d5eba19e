//! The file operations that a store uses.
//!
//! They are few and behind a trait, so that a test can stop the world between any two of them, or lose what
//! was not yet forced to the device, and look at what is left.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::version::Version;

/// The greatest length of a file, in bytes, that a store reads or writes: 256 MiB.
pub const MAX_FILE: u64 = 256 * 1024 * 1024;

/// The file operations that a store uses. All methods block, but none waits for another process.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Creates a folder and those above it, readable by their owner only, and forces their names to the
    /// device.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Returns the content of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for anything but a regular file of at most [`MAX_FILE`] bytes, which is
    /// not opened.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;

    /// Returns the beginning of a file, at most so many bytes; empty if the file does not exist.
    ///
    /// # Errors
    /// As [`Disk::read`].
    fn read_start(&self, path: &Path, length: usize) -> io::Result<Vec<u8>> {
        let mut content = self.read(path)?.unwrap_or_default();
        content.truncate(length);
        Ok(content)
    }

    /// Returns the version of a file, if it can be determined without reading the file.
    ///
    /// Two versions are equal only if the file has not changed in between. A file that is so young that a
    /// further change might not change its times has no version yet. With `None` the store reads the file, so
    /// `None` is correct for every disk and every file.
    fn version(&self, path: &Path) -> Option<Version> {
        let _ = path;
        None
    }

    /// Writes a new file.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Forces a file's content to the device.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Renames a file, atomically replacing a file of that name; or renames a folder to a name that is not in
    /// use.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Forces a folder's entries to the device.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Removes a file; a missing one is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder. A folder that is missing or not empty is no error.
    ///
    /// The store does not depend on it: a disk without this operation may leave the folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }

    /// Lists the files of a folder, without its subfolders; empty if the folder does not exist.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Lists the subfolders of a folder; empty if the folder does not exist.
    fn folders(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Takes the exclusive lock behind a path, across processes, and holds it until the guard is dropped.
    /// Returns `None` at once if another holds it.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send>>>;
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            self.create_folder(parent)?;
        }
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(path) {
            // Another process created it and may not have forced its name to the device yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            created => created?,
        }
        self.sync_folder(parent.unwrap_or(Path::new(".")))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let content = read_up_to(path, MAX_FILE + 1)?;
        if content
            .as_ref()
            .is_some_and(|content| content.len() as u64 > MAX_FILE)
        {
            return Err(too_large());
        }
        Ok(content)
    }

    fn read_start(&self, path: &Path, length: usize) -> io::Result<Vec<u8>> {
        Ok(read_up_to(path, length as u64)?.unwrap_or_default())
    }

    fn version(&self, path: &Path) -> Option<Version> {
        // The clock is read first, so that a change during the next line counts as younger.
        let now = SystemTime::now();
        let version = Version::of(&fs::metadata(path).ok()?)?;
        version.is_stable(now).then_some(version)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)?
            .write_all(content)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // Elsewhere a folder cannot be opened as a file; a rename is durable there by other means.
        if cfg!(unix) {
            File::open(path)?.sync_all()
        } else {
            Ok(())
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir(path) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        entries(path, |kind| !kind.is_dir())
    }

    fn folders(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        entries(path, fs::FileType::is_dir)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send>>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        // Released when the file is closed, also by the death of the process.
        match file.try_lock() {
            // The next process locks the file of that name, so a lock on a removed or replaced file has no
            // effect.
            Ok(()) if is_same_file(&file.metadata()?, fs::metadata(path).ok().as_ref()) => {
                Ok(Some(Box::new(file)))
            }
            Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(unix)]
fn is_same_file(locked: &fs::Metadata, named: Option<&fs::Metadata>) -> bool {
    use std::os::unix::fs::MetadataExt;

    named.is_some_and(|named| (locked.dev(), locked.ino()) == (named.dev(), named.ino()))
}

#[cfg(not(unix))]
fn is_same_file(_: &fs::Metadata, named: Option<&fs::Metadata>) -> bool {
    named.is_some()
}

fn read_up_to(path: &Path, length: u64) -> io::Result<Option<Vec<u8>>> {
    let content = || {
        // Opening a pipe would wait for its writer.
        let file = fs::metadata(path)?;
        check_kind(&file)?;
        let mut content = Vec::with_capacity(usize::try_from(file.len().min(length)).unwrap_or_default());
        File::open(path)?.take(length).read_to_end(&mut content)?;
        Ok::<_, io::Error>(content)
    };
    match content() {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn check_kind(file: &fs::Metadata) -> io::Result<()> {
    if !file.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not a regular file",
        ));
    }
    if file.len() > MAX_FILE {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("it is larger than {MAX_FILE} bytes"),
    )
}

/// Lists the entries of a folder that are of the wanted kind; empty if the folder does not exist.
fn entries(path: &Path, is_wanted: fn(&fs::FileType) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut wanted = Vec::new();
    for entry in entries {
        let entry = entry?;
        if is_wanted(&entry.file_type()?) {
            wanted.push(entry.path());
        }
    }
    Ok(wanted)
}
