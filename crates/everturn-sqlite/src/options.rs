//! How a SQLite store is set up.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everturn_core::{Error, Result};

use crate::SqliteStore;

/// When a save may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// When it is on the device: it survives a loss of power.
    #[default]
    Full,
    /// When the operating system has it: it survives a crash of the process, and a loss of power may take back the last
    /// moments, in whole saves.
    Normal,
}

/// The settings of a [`SqliteStore`].
///
/// ```no_run
/// use everturn_sqlite::{Durability, SqliteStore};
///
/// # async fn open() -> everturn_core::Result<()> {
/// let store = SqliteStore::options("kitchen.db").durability(Durability::Normal).readers(8).open().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing until the store is opened"]
pub struct SqliteStoreOptions {
    pub(crate) path: PathBuf,
    pub(crate) durability: Durability,
    pub(crate) blob_threshold: usize,
    pub(crate) compress_over: Option<usize>,
    pub(crate) readers: usize,
    pub(crate) cache_bytes: usize,
    pub(crate) busy_timeout: Duration,
    pub(crate) poll: Duration,
}

impl SqliteStoreOptions {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            durability: Durability::Full,
            blob_threshold: 16 * 1024,
            compress_over: Some(256),
            readers: 4,
            cache_bytes: 64 * 1024 * 1024,
            busy_timeout: Duration::from_secs(10),
            poll: Duration::from_millis(25),
        }
    }

    /// When a save may be acknowledged; [`Durability::Full`] unless set.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Strings of at least this many bytes, inline images for instance, are stored once by their hash; 16 KiB unless set.
    pub fn blob_threshold(mut self, bytes: usize) -> Self {
        self.blob_threshold = bytes;
        self
    }

    /// Values of at least this many bytes are compressed where that makes them smaller; 256 unless set.
    pub fn compress_over(mut self, bytes: usize) -> Self {
        self.compress_over = Some(bytes);
        self
    }

    /// Compresses nothing that is written from now on; what is compressed already is still read.
    pub fn without_compression(mut self) -> Self {
        self.compress_over = None;
        self
    }

    /// How many reads may go on at once; 4 unless set.
    pub fn readers(mut self, count: usize) -> Self {
        self.readers = count;
        self
    }

    /// About how much of the conversations used last stays in memory, so that going on with them reads nothing; 64 MiB
    /// unless set.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// How long a save waits for another process that is writing, before it fails with `UNAVAILABLE`; 10 s unless set.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// How often to look for changes made by other processes while somebody watches a row; every 25 ms unless set.
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// Opens the store: creates the file if there is none, and brings the schema of an older one up to date.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` for a database of a newer version, one that belongs to another program, or a folder that does
    /// not exist; `DATA_LOSS` for a file that is no database; `PERMISSION_DENIED` for one that may not be written;
    /// `INVALID_ARGUMENT` for settings that make no sense.
    pub async fn open(self) -> Result<SqliteStore> {
        if self.readers == 0 {
            return Err(Error::invalid_argument("a store needs at least one reader"));
        }
        if self.poll.is_zero() {
            return Err(Error::invalid_argument(
                "poll_every needs some time between two looks",
            ));
        }
        if self.blob_threshold == 0 {
            return Err(Error::invalid_argument("blob_threshold must be at least 1"));
        }
        tokio::task::spawn_blocking(|| SqliteStore::start(self)).await?
    }
}
