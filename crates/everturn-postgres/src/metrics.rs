//! The metrics of a store.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::PostgresStore;

/// Counts of events since a store was opened, in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresMetrics {
    /// The number of open connections, without the one that listens for notifications.
    pub connections: usize,
    /// The number of idle connections.
    pub idle_connections: usize,
    /// The number of calls that wait for a connection.
    pub waiting: usize,
    /// The number of statements sent, each of which is one round trip.
    pub round_trips: u64,
    /// The number of commits that were acknowledged.
    pub commits: u64,
    /// The time that acknowledged commits took, all together.
    pub commit_time: Duration,
    /// The number of times that a commit was tried again, because another writer was faster or its connection
    /// broke.
    pub retries: u64,
    /// The number of connections that broke during a statement.
    pub lost_connections: u64,
    /// The number of times that a background run was found whose lease had lapsed.
    pub lapsed_leases: u64,
    /// Whether notifications of other processes arrive; otherwise their changes are found by polling.
    pub is_listening: bool,
}

/// The names of the metrics, without their prefix, and their descriptions. Names of counters end with
/// `_total`.
const DESCRIPTIONS: [(&str, &str); 10] = [
    ("connections", "Open connections."),
    ("idle_connections", "Open connections that nobody uses."),
    ("waiting", "Calls that wait for a connection."),
    ("listening", "Whether notifications arrive."),
    ("round_trips_total", "Statements sent."),
    ("commits_total", "Commits acknowledged."),
    ("commit_seconds_total", "Time that acknowledged commits took."),
    ("retries_total", "Commits tried again."),
    ("lost_connections_total", "Connections that broke in use."),
    ("lapsed_leases_total", "Background runs found without a worker."),
];

impl PostgresMetrics {
    /// Returns the metrics in the text format of Prometheus, under names that begin with
    /// `everturn_postgres_`. A server shows them at `/metrics` if it is given them with `Server::metrics_of`.
    ///
    /// ```
    /// use everturn_postgres::PostgresMetrics;
    ///
    /// assert!(PostgresMetrics::default().to_prometheus().contains("everturn_postgres_commits_total 0\n"));
    /// ```
    pub fn to_prometheus(&self) -> String {
        let values = [
            self.connections.to_string(),
            self.idle_connections.to_string(),
            self.waiting.to_string(),
            u8::from(self.is_listening).to_string(),
            self.round_trips.to_string(),
            self.commits.to_string(),
            self.commit_time.as_secs_f64().to_string(),
            self.retries.to_string(),
            self.lost_connections.to_string(),
            self.lapsed_leases.to_string(),
        ];
        let mut text = String::new();
        for ((name, help), value) in DESCRIPTIONS.iter().zip(values) {
            // In OpenMetrics the suffix belongs to the value, not to the name of a counter.
            let (family, kind) = match name.strip_suffix("_total") {
                Some(family) => (family, "counter"),
                None => (*name, "gauge"),
            };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "# HELP everturn_postgres_{family} {help}\n# TYPE everturn_postgres_{family} {kind}\n\
                 everturn_postgres_{name} {value}\n"
            );
        }
        text
    }
}

impl PostgresStore {
    /// Returns the metrics of this store in this process.
    pub fn metrics(&self) -> PostgresMetrics {
        let db = &self.inner().db;
        let pool = db.pool.status();
        let counters = &db.counters;
        PostgresMetrics {
            connections: pool.size,
            idle_connections: pool.available,
            waiting: db.slots.waiting(),
            round_trips: counters.round_trips.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            commit_time: Duration::from_nanos(counters.commit_nanos.load(Ordering::Relaxed)),
            retries: counters.conflicts.load(Ordering::Relaxed),
            lost_connections: counters.lost_connections.load(Ordering::Relaxed),
            lapsed_leases: counters.lapsed_leases.load(Ordering::Relaxed),
            is_listening: self.inner().watchers.is_listening(),
        }
    }
}
