//! The settings of a PostgreSQL store.

use std::path::PathBuf;
use std::time::Duration;

use everturn_sql::Encoding;

/// The settings of a [`PostgresStore`](crate::PostgresStore).
///
/// ```no_run
/// use everturn_postgres::PostgresStore;
///
/// # async fn open() -> everturn_core::Result<()> {
/// let store = PostgresStore::options("postgres://chef@db.example/kitchen")
///     .schema("conversations")
///     .connections(20)
///     .open()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until the store is opened"]
pub struct PostgresStoreOptions {
    pub(crate) url: String,
    pub(crate) listen_url: Option<String>,
    pub(crate) listen: bool,
    pub(crate) schema: String,
    pub(crate) root_certificates: Option<PathBuf>,
    pub(crate) connections: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) checkout_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) migrate: bool,
    pub(crate) encoding: Encoding,
    pub(crate) cache_bytes: usize,
    pub(crate) poll: Duration,
}

impl PostgresStoreOptions {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            listen_url: None,
            listen: true,
            schema: "everturn".to_owned(),
            root_certificates: None,
            connections: 10,
            connect_timeout: Duration::from_secs(5),
            checkout_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(15),
            migrate: true,
            encoding: Encoding::default(),
            cache_bytes: 64 * 1024 * 1024,
            poll: Duration::from_millis(250),
        }
    }

    everturn_core::setters! {
        /// Sets the schema that holds the tables; `everturn` by default. Several stores can share a database,
        /// each in a separate schema.
        pub fn schema(mut self, name: impl Into<String>) { self.schema = name.into() }

        /// Sets the connection string of the one connection that listens for notifications; by default the
        /// one of the store.
        ///
        /// Behind a pooler in transaction mode notifications do not arrive. With a connection string that
        /// bypasses the pooler, [watchers](everturn_agent::store::SessionStore::watch) receive changes at
        /// once.
        pub fn listen_on(mut self, url: impl Into<String>) { self.listen_url = Some(url.into()) }

        /// Opens no connection for notifications: changes made by other processes are found by polling alone.
        pub fn without_listening(mut self) { self.listen = false }

        /// Trusts the certificates in a PEM file instead of the system's.
        pub fn root_certificates(mut self, file: impl Into<PathBuf>) {
            self.root_certificates = Some(file.into());
        }

        /// Sets the maximum number of connections, in addition to the one that listens; 10 by default. If the
        /// server allows fewer, calls wait for an open connection. Idle connections are closed after 3 s,
        /// except the last one.
        pub fn connections(mut self, count: usize) { self.connections = count }

        /// Sets how long opening a connection may take; 5 s by default.
        pub fn connect_timeout(mut self, timeout: Duration) { self.connect_timeout = timeout }

        /// Sets how long a call waits for a free connection; 10 s by default, and no longer than the call's
        /// `patience`.
        pub fn checkout_timeout(mut self, timeout: Duration) { self.checkout_timeout = timeout }

        /// Sets how long a statement may take before it is cancelled; 30 s by default. In a call with a
        /// deadline, a statement has at most half of the remaining time, so that the call can retry on
        /// another connection.
        pub fn statement_timeout(mut self, timeout: Duration) { self.statement_timeout = timeout }

        /// Sets how long a call may take, including waits for connections and retries, before it fails with
        /// `UNAVAILABLE`; 15 s by default. After a call that failed so, further calls may take an eighth of
        /// it, until the database answers or that time has passed again. For deletions, verification and
        /// migrations the limit applies to each attempt, and their total is not limited.
        pub fn patience(mut self, patience: Duration) { self.patience = patience }

        /// Expects existing tables, created by an operator with
        /// [`PostgresStore::migration_sql`](crate::PostgresStore::migration_sql).
        pub fn without_migrations(mut self) { self.migrate = false }

        /// Sets how values are encoded: which strings are stored once by their hash, and which values are
        /// compressed.
        pub fn encoding(mut self, encoding: Encoding) { self.encoding = encoding }

        /// Sets the approximate size in bytes of the cache of recently used conversations; 64 MiB by default.
        /// Continuing a cached conversation does not read it again.
        pub fn cache_bytes(mut self, bytes: usize) { self.cache_bytes = bytes }

        /// Sets how often a watched snapshot is polled for status changes made by other processes; every 250
        /// ms by default.
        ///
        /// While notifications arrive, which report changes at once, the interval is twenty times longer.
        pub fn poll_every(mut self, interval: Duration) { self.poll = interval }
    }
}

// Omits the connection strings, because they may contain passwords.
everturn_core::opaque_debug!(PostgresStoreOptions, schema, connections);
