//! The settings of a stream log in SQLite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everturn_agent::Clock;
use everturn_core::{Error, Result};

use super::SqliteStreamLog;
use crate::Durability;

/// The settings of a [`SqliteStreamLog`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use everturn_sqlite::SqliteStreamLog;
///
/// # async fn open() -> everturn_core::Result<()> {
/// let log = SqliteStreamLog::options("streams.db").keep_for(Duration::from_mins(30)).open().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing until the log is opened"]
pub struct SqliteStreamLogOptions {
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    pub(super) keep_for: Duration,
    pub(super) max_bytes: usize,
    pub(super) max_owner_bytes: usize,
    pub(super) max_stream_bytes: usize,
    pub(super) lease: Duration,
    pub(super) flush: Duration,
    pub(super) poll: Duration,
    pub(super) readers: usize,
    pub(super) busy_timeout: Duration,
    pub(super) clock: Clock,
}

impl SqliteStreamLogOptions {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            durability: Durability::Normal,
            keep_for: Duration::from_mins(5),
            max_bytes: 512 * 1024 * 1024,
            max_owner_bytes: 128 * 1024 * 1024,
            max_stream_bytes: 64 * 1024 * 1024,
            lease: Duration::from_secs(15),
            flush: Duration::from_millis(20),
            poll: Duration::from_millis(25),
            readers: 4,
            busy_timeout: Duration::from_secs(10),
            clock: Clock::system(),
        }
    }

    everturn_core::setters! {
        /// Sets which events survive a loss of power; [`Durability::Normal`] by default, because streams are
        /// read soon.
        pub fn durability(mut self, durability: Durability) { self.durability = durability }

        /// Sets how long a stream is kept after its end; 5 minutes by default.
        pub fn keep_for(mut self, duration: Duration) { self.keep_for = duration }

        /// Sets how many bytes of chunks a stream may have; 64 MiB by default. A stream that grows larger
        /// ends with `RESOURCE_EXHAUSTED`.
        pub fn max_stream_bytes(mut self, bytes: usize) { self.max_stream_bytes = bytes }

        /// Sets how many bytes all streams together may have; 512 MiB by default. When the log is full, it
        /// removes finished streams, the oldest first. If that does not make enough room, the stream that
        /// needs it ends with `RESOURCE_EXHAUSTED`. The file does not shrink; its free pages are used again.
        pub fn max_bytes(mut self, bytes: usize) { self.max_bytes = bytes }

        /// Sets how many bytes the streams of one [owner](everturn_core::stream_log::StreamKey::owner) may
        /// have together; 128 MiB by default. An owner at its limit loses its own finished streams, the
        /// oldest first, and then its streams end with `RESOURCE_EXHAUSTED`.
        pub fn max_owner_bytes(mut self, bytes: usize) { self.max_owner_bytes = bytes }

        /// Sets the lease of a writing process; 15 s by default. A process renews its lease three times as
        /// often, even if it has nothing to write. When the lease lapses, the process is considered dead, and
        /// its streams end.
        pub fn lease(mut self, duration: Duration) { self.lease = duration }

        /// Sets the time between two transactions that write chunks; 20 ms by default. New chunks wait for
        /// the next transaction before readers see them.
        pub fn flush_every(mut self, interval: Duration) { self.flush = interval }

        /// Sets how often the file is polled for changes made by other processes; every 25 ms by default.
        pub fn poll_every(mut self, interval: Duration) { self.poll = interval }

        /// Sets how many reads of the file may run at once; 4 by default.
        pub fn readers(mut self, count: usize) { self.readers = count }

        /// Sets how long to wait for another process that is writing before a stream fails with
        /// `UNAVAILABLE`; 10 s by default.
        pub fn busy_timeout(mut self, timeout: Duration) { self.busy_timeout = timeout }

        /// Sets the clock for expiry and leases; the system's clock by default.
        pub fn clock(mut self, clock: Clock) { self.clock = clock }
    }

    /// Opens the log, creating the file if it does not exist and migrating an older schema.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` for a database of a newer version, a database that is no stream log, or a folder
    /// that does not exist; `DATA_LOSS` for a file that is not a database; `PERMISSION_DENIED` for a file
    /// that is read-only; `INVALID_ARGUMENT` for a setting of zero.
    pub async fn open(self) -> Result<SqliteStreamLog> {
        if self.readers == 0 {
            return Err(Error::invalid_argument("readers is 0 and must be at least 1"));
        }
        if self.poll.is_zero() || self.lease.is_zero() {
            return Err(Error::invalid_argument(
                "poll_every and lease must be longer than zero",
            ));
        }
        tokio::task::spawn_blocking(|| SqliteStreamLog::start(self)).await?
    }

    /// Returns the current time, as it is stored.
    pub(super) fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Returns the time after `duration`, as it is stored.
    pub(super) fn in_future(&self, duration: Duration) -> i64 {
        let milliseconds = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        self.now().saturating_add(milliseconds)
    }
}
