//! How a file store is set up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Error, Result};

use crate::FileStore;
use crate::disk::{Disk, RealDisk};

/// How often the files are looked at for changes made by other processes, unless the caller says otherwise.
const DEFAULT_POLL: Duration = Duration::from_secs(2);

/// The settings of a [`FileStore`].
///
/// ```no_run
/// use std::time::Duration;
/// use everturn_file::FileStore;
///
/// # fn main() -> everturn_core::Result<()> {
/// let store = FileStore::options("sessions").max_chain(50).poll_every(Duration::from_millis(250)).open()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing until the store is opened"]
pub struct FileStoreOptions {
    pub(crate) root: PathBuf,
    pub(crate) max_chain: Option<usize>,
    pub(crate) poll: Option<Duration>,
    pub(crate) disk: Arc<dyn Disk>,
}

impl FileStoreOptions {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            max_chain: None,
            poll: Some(DEFAULT_POLL),
            disk: Arc::new(RealDisk),
        }
    }

    /// Keeps only this many points of each line of ancestors; older ones are deleted as new ones are saved.
    pub fn max_chain(mut self, length: usize) -> Self {
        self.max_chain = Some(length);
        self
    }

    /// How often to look for status changes made by other processes while somebody watches.
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll = Some(interval);
        self
    }

    /// Never looks: a watcher hears of changes made in this process only.
    pub fn without_polling(mut self) -> Self {
        self.poll = None;
        self
    }

    /// Works on other file operations, for tests that let them fail.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Opens the store, creating its folder.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a chain of no length or an interval of no time; what the file system reports if the
    /// folder cannot be created.
    pub fn open(self) -> Result<FileStore> {
        if self.max_chain == Some(0) {
            return Err(Error::invalid_argument("max_chain must be at least 1"));
        }
        if self.poll == Some(Duration::ZERO) {
            return Err(Error::invalid_argument(
                "poll_every needs some time; without_polling turns polling off",
            ));
        }
        FileStore::start(self)
    }
}
