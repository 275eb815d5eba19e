//! The settings of a file store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Error, Result};

use crate::FileStore;
use crate::disk::{Disk, RealDisk};

/// The default interval at which files are polled for changes made by other processes.
const DEFAULT_POLL: Duration = Duration::from_secs(2);

/// The default time that a save waits for another process.
const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of a [`FileStore`].
///
/// ```no_run
/// use std::time::Duration;
/// use everturn_file::FileStore;
///
/// # async fn open() -> everturn_core::Result<()> {
/// let store = FileStore::options("sessions").max_chain(50).poll_every(Duration::from_millis(250)).open().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing until the store is opened"]
pub struct FileStoreOptions {
    pub(crate) root: PathBuf,
    pub(crate) max_chain: Option<usize>,
    pub(crate) poll: Option<Duration>,
    pub(crate) busy_timeout: Duration,
    pub(crate) disk: Arc<dyn Disk>,
}

impl FileStoreOptions {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            max_chain: None,
            poll: Some(DEFAULT_POLL),
            busy_timeout: DEFAULT_BUSY_TIMEOUT,
            disk: Arc::new(RealDisk),
        }
    }

    everturn_core::setters! {
        /// Keeps only the newest `length` snapshots of each chain of parents. Older ones are deleted as new
        /// ones are saved. By default all snapshots are kept.
        pub fn max_chain(mut self, length: usize) { self.max_chain = Some(length) }

        /// Sets how often a watched snapshot is polled for status changes made by other processes; 2 s by
        /// default.
        pub fn poll_every(mut self, interval: Duration) { self.poll = Some(interval) }

        /// Turns polling off. Watchers then receive only changes made in this process.
        pub fn without_polling(mut self) { self.poll = None }

        /// Sets how long a save waits for another process that holds the lock, from the call on, before it
        /// fails with `UNAVAILABLE`; 10 s by default. Reads do not wait.
        pub fn busy_timeout(mut self, timeout: Duration) { self.busy_timeout = timeout }

        /// Replaces the file operations, for tests that make them fail.
        pub fn disk(mut self, disk: Arc<dyn Disk>) { self.disk = disk }
    }

    /// Opens the store, creating its folder.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `max_chain` or the polling interval is zero; the file system's error if the
    /// folder cannot be created.
    pub async fn open(self) -> Result<FileStore> {
        if self.max_chain == Some(0) {
            return Err(Error::invalid_argument("max_chain is 0 and must be at least 1"));
        }
        if self.poll == Some(Duration::ZERO) {
            return Err(Error::invalid_argument(
                "poll_every needs an interval longer than zero; without_polling turns polling off",
            ));
        }
        tokio::task::spawn_blocking(|| FileStore::start(self)).await?
    }
}
