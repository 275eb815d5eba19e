//! The settings of a SQLite store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everturn_sql::Encoding;

/// When a save is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// A save is acknowledged when it is on the device, and survives a loss of power.
    #[default]
    Full,
    /// A save is acknowledged when the operating system has it. It survives a crash of the process. A loss of
    /// power may lose the most recent saves, each as a whole.
    Normal,
}

/// The settings of a [`SqliteStore`](crate::SqliteStore).
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
    pub(crate) encoding: Encoding,
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
            encoding: Encoding::default(),
            readers: 4,
            cache_bytes: 64 * 1024 * 1024,
            busy_timeout: Duration::from_secs(10),
            poll: Duration::from_millis(25),
        }
    }

    everturn_core::setters! {
        /// Sets when a save is acknowledged; [`Durability::Full`] by default.
        pub fn durability(mut self, durability: Durability) { self.durability = durability }

        /// Sets how values are encoded: which strings are stored once by their hash, and which values are
        /// compressed.
        pub fn encoding(mut self, encoding: Encoding) { self.encoding = encoding }

        /// Sets how many reads may run at once; 4 by default.
        pub fn readers(mut self, count: usize) { self.readers = count }

        /// Sets the approximate size in bytes of the cache of recently used conversations; 64 MiB by default.
        /// Continuing a cached conversation reads no rows. The size is that in memory, not the length of the
        /// stored text.
        pub fn cache_bytes(mut self, bytes: usize) { self.cache_bytes = bytes }

        /// Sets how long a save waits for another process that is writing, from the call on, before it fails
        /// with `UNAVAILABLE`; 10 s by default.
        pub fn busy_timeout(mut self, timeout: Duration) { self.busy_timeout = timeout }

        /// Sets how often a watched snapshot is polled for status changes made by other processes; every 25
        /// ms by default.
        pub fn poll_every(mut self, interval: Duration) { self.poll = interval }
    }
}
