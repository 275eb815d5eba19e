//! The settings of a stream log in PostgreSQL.

use std::path::PathBuf;
use std::time::Duration;

use everturn_agent::Clock;
use everturn_sql::clamped_nanos;
use jiff::Timestamp;

use crate::options::PostgresStoreOptions;

/// The settings of a [`PostgresStreamLog`](crate::PostgresStreamLog).
#[derive(Debug, Clone)]
#[must_use = "options do nothing until the log is opened"]
pub struct PostgresStreamLogOptions {
    pub(super) database: PostgresStoreOptions,
    pub(super) keep_for: Duration,
    pub(super) max_stream_bytes: usize,
    pub(super) lease: Duration,
    pub(super) flush: Duration,
    pub(super) poll: Duration,
    pub(super) clock: Option<Clock>,
}

impl PostgresStreamLogOptions {
    pub(super) fn new(url: &str) -> Self {
        Self {
            database: PostgresStoreOptions::new(url).schema("everturn_streams"),
            keep_for: Duration::from_mins(5),
            max_stream_bytes: 64 * 1024 * 1024,
            lease: Duration::from_secs(15),
            flush: Duration::from_millis(20),
            poll: Duration::from_millis(50),
            clock: None,
        }
    }

    everturn_core::setters! {
        /// Sets the schema that holds the tables; `everturn_streams` by default. It must not be a store's.
        pub fn schema(mut self, name: impl Into<String>) { self.database = self.database.schema(name) }

        /// Sets how many connections the log opens at most; 10 by default.
        pub fn connections(mut self, count: usize) { self.database = self.database.connections(count) }

        /// Trusts the certificates in a PEM file instead of the system's.
        pub fn root_certificates(mut self, file: impl Into<PathBuf>) {
            self.database = self.database.root_certificates(file);
        }

        /// Sets how long a stream is kept after its end; 5 minutes by default.
        pub fn keep_for(mut self, duration: Duration) { self.keep_for = duration }

        /// Sets how many bytes of chunks a stream may have; 64 MiB by default. A stream that needs more ends
        /// with `RESOURCE_EXHAUSTED`.
        pub fn max_stream_bytes(mut self, bytes: usize) { self.max_stream_bytes = bytes }

        /// Sets the lease of a writing process; 15 s by default. A process renews its lease three times as
        /// often. When the lease lapses, the process is considered dead.
        pub fn lease(mut self, duration: Duration) { self.lease = duration }

        /// Sets the time between two statements that write chunks of a stream; 20 ms by default. Chunks
        /// meanwhile, and their readers, wait for the next one.
        pub fn flush_every(mut self, interval: Duration) { self.flush = interval }

        /// Sets how often readers look for the chunks of other processes, and writers for requests to stop;
        /// every 50 ms by default.
        pub fn poll_every(mut self, interval: Duration) { self.poll = interval }

        /// Sets the clock by which streams expire and leases lapse; the database's by default.
        pub fn clock(mut self, clock: Clock) { self.clock = Some(clock) }
    }

    /// The time in nanoseconds since 1970.
    pub(super) fn now(&self) -> i64 {
        clamped_nanos(self.clock.as_ref().map_or_else(Timestamp::now, Clock::now))
    }

    /// Streams that ended before this moment have expired.
    pub(super) fn expired_before(&self) -> i64 {
        self.now().saturating_sub(length(self.keep_for))
    }
}

/// Returns a duration in nanoseconds.
pub(super) fn length(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
