//! The file operations a store is made of.
//!
//! They are few and behind a trait, so that a test can stop the world between any two of them, or lose what was not
//! yet forced to the device, and look at what is left.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::version::Version;

/// What a store asks of the file system. All methods block.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Creates a folder and those above it, readable by their owner only, and forces their names to the device.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// The content of a file; `None` if it does not exist.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;

    /// Which version of a file is there, if that can be told without reading it.
    ///
    /// Two answers are equal only if the file has not changed in between: one that may change without getting another
    /// version, because it is too young for its times to tell, has none. `None` makes the store read the file, and so
    /// is right for every disk and every file.
    fn version(&self, path: &Path) -> Option<Version> {
        let _ = path;
        None
    }

    /// Writes a new file.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Forces a file's content to the device.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Puts a file in another's place, atomically; or gives a folder a name that nothing has.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Forces a folder's entries to the device.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Removes a file; a missing one is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder that has become empty; one that is not, or is not there, is no error.
    ///
    /// Nothing depends on it: a disk that cannot may leave the folder.
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }

    /// The files of a folder, without the folders in it; none if it does not exist.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// The folders of a folder; none if it does not exist.
    fn folders(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Waits for the exclusive lock behind a path, across processes, and holds it until the guard is dropped.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>>;
}

/// The file system as it is.
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
            // Somebody else was faster, and may not have come to the next line yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            created => created?,
        }
        self.sync_folder(parent.unwrap_or(Path::new(".")))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match fs::read(path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn version(&self, path: &Path) -> Option<Version> {
        // The clock first: what changes while the file is looked at is younger than this.
        let now = SystemTime::now();
        let version = Version::of(&fs::metadata(path).ok()?)?;
        version.is_settled(now).then_some(version)
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

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        // Released when the file is closed, also by the death of the process.
        file.lock()?;
        Ok(Box::new(file))
    }
}

/// What is in a folder and of such a kind; nothing if there is no folder.
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
