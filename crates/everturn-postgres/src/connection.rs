//! Connections to the database: its address, the pool, and the execution of statements.
//!
//! Every statement is unnamed and typed: it is parsed, bound and executed in one round trip, and any
//! connection of a pooler can carry it. Connections have no state, so they need no reset.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod, Runtime,
};
use everturn_core::{Error, Result};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::fault::{Fault, Outcome, describe};
use crate::options::PostgresStoreOptions;
use crate::slots::{Pooled, Slots};
use crate::statement::{Statement, column};
use crate::time::DatabaseTime;

/// A connection that was idle for this long is tested before it is used.
const CHECK_AFTER: Duration = Duration::from_secs(10);

/// A connection that was idle for this long is closed, except the last one.
const MAX_IDLE: Duration = Duration::from_secs(3);

/// The first wait before a call is tried again; it doubles with each attempt.
const FIRST_BACKOFF: Duration = Duration::from_millis(2);
const MAX_BACKOFF: Duration = Duration::from_millis(250);
const MAX_TURN: Duration = Duration::from_millis(8);

/// The time within which a timed-out statement must be cancelled.
const AFTER_CANCEL: Duration = Duration::from_secs(1);

/// The fraction of its patience that a call has while the database is silent: 1/8.
const SILENT: u32 = 8;

/// A statement is sent only if at least this fraction of the call's time is left: 1/32.
const LEAST: u32 = 32;

/// The deadline of work that has none.
const NEVER: Duration = Duration::from_hours(24 * 365);

tokio::task_local! {
    /// The deadline of the store's current call.
    static DEADLINE: Instant;
}

/// The database's time in nanoseconds since 1970.
pub(crate) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint";

/// The address of a database, and the settings for connecting to it.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) tls: MakeRustlsConnect,
}

impl Address {
    /// Reads a connection string. TLS is required, and the server's certificate verified, unless the string
    /// has `sslmode=disable`, or has no `sslmode` and the server is on this machine.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the string or the certificates cannot be read.
    pub(crate) fn parse(url: &str, options: &PostgresStoreOptions) -> Result<Self> {
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            Error::invalid_argument(format!(
                "the connection string of the session database cannot be read: {}; it looks like \
                 postgres://user:password@host:5432/database",
                describe(&error)
            ))
        })?;
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        let is_silent = !url.contains("sslmode");
        let mode = match config.get_ssl_mode() {
            SslMode::Disable => SslMode::Disable,
            _ if is_silent && config.get_hosts().iter().all(is_local) => SslMode::Disable,
            _ => SslMode::Require,
        };
        config.ssl_mode(mode);
        config.connect_timeout(options.connect_timeout);
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(options.statement_timeout);
        if config.get_application_name().is_none() {
            config.application_name("everturn");
        }
        let tls = MakeRustlsConnect::new(tls(options)?);
        Ok(Self { config, tls })
    }

    /// Returns the address of the database, without user and password.
    pub(crate) fn place(&self) -> String {
        let hosts: Vec<Cow<'_, str>> = self
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => Cow::from(name.as_str()),
                #[cfg(unix)]
                Host::Unix(path) => path.to_string_lossy(),
            })
            .collect();
        let ports: Vec<String> = self
            .config
            .get_ports()
            .iter()
            .map(|port| format!(":{port}"))
            .collect();
        let name = self
            .config
            .get_dbname()
            .or(self.config.get_user())
            .unwrap_or_default();
        format!("{}{}/{name}", hosts.join(","), ports.join(","))
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn tls(options: &PostgresStoreOptions) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let refused =
        |error: &dyn fmt::Display| Error::invalid_argument(format!("TLS cannot be set up: {error}"));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?;
    let builder = match &options.root_certificates {
        None => builder
            .with_platform_verifier()
            .map_err(|error| refused(&error))?,
        Some(file) => {
            let named = |error: &dyn fmt::Display| {
                Error::invalid_argument(format!("the certificates in '{}': {error}", file.display()))
            };
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(file).map_err(|error| named(&error))? {
                let certificate = certificate.map_err(|error| named(&error))?;
                roots.add(certificate).map_err(|error| named(&error))?;
            }
            builder.with_root_certificates(roots)
        }
    };
    Ok(builder.with_no_client_auth())
}

/// The pool of connections, and how statements are run on it.
pub(crate) struct Database {
    pub(crate) pool: Pool,
    pub(crate) address: Address,
    pub(crate) place: String,
    /// The quoted name of the schema, with a dot.
    schema: String,
    /// Limits the connections to the number that the server allows.
    pub(crate) slots: Slots,
    /// The connections whose transactions may lock sessions at the same time.
    pub(crate) lockers: Semaphore,
    checkout_timeout: Duration,
    statement_timeout: Duration,
    pub(crate) patience: Duration,
    answers: Mutex<Answers>,
    pub(crate) counters: Counters,
    /// The database's clock.
    pub(crate) time: DatabaseTime,
}

/// When the database last answered, and until when it is taken to be silent.
struct Answers {
    last: Instant,
    silent_until: Option<Instant>,
}

/// Counters of events since the store was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) round_trips: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) commit_nanos: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) lost_connections: AtomicU64,
    pub(crate) lapsed_leases: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Database {
    pub(crate) fn new(options: &PostgresStoreOptions) -> Result<Self> {
        let address = Address::parse(&options.url, options)?;
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(address.config.clone(), address.tls.clone(), recycling);
        // A check costs a round trip, so a recently used connection is not checked. If it has broken, the
        // statement fails, its outcome is determined, and it is retried on another connection.
        let check = Hook::async_fn(|client: &mut deadpool_postgres::ClientWrapper, metrics| {
            Box::pin(async move {
                if metrics.last_used() < CHECK_AFTER {
                    return Ok(());
                }
                client
                    .simple_query("")
                    .await
                    .map(|_| ())
                    .map_err(HookError::Backend)
            })
        });
        let pool = Pool::builder(manager)
            // The slots limit it, and wait for a free connection.
            .max_size(options.connections)
            // The connections that are not needed stay unused, and are closed.
            .queue_mode(QueueMode::Lifo)
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.connect_timeout))
            .pre_recycle(check)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::internal(format!("a pool of connections cannot be made: {error}")))?;
        Ok(Self {
            pool,
            place: address.place(),
            address,
            schema: format!("{}.", quoted(&options.schema)),
            slots: Slots::new(options.connections),
            lockers: Semaphore::new((options.connections / 2).max(1)),
            checkout_timeout: options.checkout_timeout,
            statement_timeout: options.statement_timeout,
            patience: options.patience,
            answers: Mutex::new(Answers {
                last: Instant::now(),
                silent_until: None,
            }),
            counters: Counters::default(),
            time: DatabaseTime::unknown(),
        })
    }

    /// Closes connections that are idle, so that other processes can open theirs, until the database is
    /// dropped.
    pub(crate) fn close_idle_connections(self: &Arc<Self>) {
        let database = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(MAX_IDLE / 4).await;
                let Some(database) = database.upgrade() else {
                    return;
                };
                let mut surplus = database.pool.status().size.saturating_sub(1);
                database.pool.retain(|_, metrics| {
                    let is_closed = surplus > 0 && metrics.last_used() >= MAX_IDLE;
                    surplus -= usize::from(is_closed);
                    !is_closed
                });
            }
        });
    }

    /// Runs one call of the store. One deadline applies to the whole call, including waits for a connection
    /// and retries. Within another call, the deadline of the outer call applies.
    ///
    /// A turn makes several calls, so after one that used up its patience without an answer, further calls
    /// have little time until the database answers again.
    pub(crate) fn within<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<'_, F> {
        let outer = deadline();
        let begun = Instant::now();
        let deadline = outer.unwrap_or_else(|| begun + self.patience_now());
        // Boxed to keep the futures around it small.
        let work = DEADLINE.scope(deadline, Box::pin(work));
        async move {
            let output = work.await;
            if outer.is_none() {
                self.note_call(begun);
            }
            output
        }
    }

    fn patience_now(&self) -> Duration {
        match self.answers.lock().silent_until {
            Some(until) if Instant::now() < until => self.patience / SILENT,
            _ => self.patience,
        }
    }

    /// Notes that a call has ended: if it took all of its time and nothing was answered meanwhile, the
    /// database is silent. After a while a call is patient again, in case the answers are only slow.
    fn note_call(&self, begun: Instant) {
        let now = Instant::now();
        if now - begun + self.patience / SILENT < self.patience {
            return;
        }
        let mut answers = self.answers.lock();
        if answers.last < begun {
            answers.silent_until = Some(now + self.patience);
        }
    }

    /// Notes that the database has answered, unless the answer is that a connection failed.
    fn answered<T>(&self, answer: std::result::Result<T, tokio_postgres::Error>) -> Outcome<T> {
        let answer = answer.map_err(Fault::from);
        if !answer.as_ref().is_err_and(Fault::is_lost) {
            *self.answers.lock() = Answers {
                last: Instant::now(),
                silent_until: None,
            };
        }
        answer
    }

    /// Runs work of many statements. Each has the time of one statement; their total is not limited.
    #[expect(clippy::unused_self, reason = "as `within`")]
    pub(crate) fn unhurried<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        DEADLINE.scope(Instant::now() + NEVER, Box::pin(work))
    }

    /// Waits as long as the call has time left; `None` after that.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let limit = left().unwrap_or(self.patience);
        tokio::time::timeout(limit, work).await.ok()
    }

    /// Returns the time limit of the next statement: half of the time that the call has left. If a connection
    /// no longer responds, the rest is enough for a retry on another connection.
    fn statement_limit(&self) -> Duration {
        left().map_or(self.statement_timeout, |left| {
            self.statement_timeout.min(left / 2)
        })
    }

    /// Waits for an answer within the time limit of a statement. Work that times out may still be executed.
    pub(crate) async fn bounded<T, E: Into<Fault>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Outcome<T> {
        let limit = self.statement_limit();
        match tokio::time::timeout(limit, work).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(Fault::Silent(limit)),
        }
    }

    /// Returns an idle or a new connection. If the server allows no more, waits until one is returned.
    pub(crate) async fn connection(&self) -> Outcome<Pooled> {
        let limit = left().map_or(self.checkout_timeout, |left| self.checkout_timeout.min(left));
        let checkout = async {
            loop {
                let slot = self.slots.take().await;
                let error = match self.pool.get().await {
                    Ok(object) => {
                        if let Some(slot) = self.slots.hand_over(slot) {
                            return Ok(Pooled::new(object, slot));
                        }
                        drop(Object::take(object));
                        continue;
                    }
                    Err(error) => error,
                };
                match error {
                    PoolError::Backend(error)
                        if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS)
                            && self.slots.give_up(slot) => {}
                    PoolError::Backend(error) => return Err(error.into()),
                    PoolError::Timeout(kind) => {
                        return Err(Fault::NoConnection(format!("no connection in time ({kind:?})")));
                    }
                    other => return Err(Fault::NoConnection(other.to_string())),
                }
            }
        };
        match tokio::time::timeout(limit, checkout).await {
            Ok(connection) => connection,
            Err(_) => Err(Fault::NoConnection(format!(
                "no connection was free, or could be opened, within {limit:?}"
            ))),
        }
    }

    /// Runs one statement on any connection, once, and returns its rows.
    pub(crate) async fn run(&self, statement: &Statement<'_>) -> Outcome<Vec<Row>> {
        let connection = self.connection().await?;
        // A statement that could neither be answered nor cancelled in time would leave its outcome unknown.
        if self.statement_limit() < self.statement_timeout.min(self.patience / LEAST) {
            return Err(Fault::NoConnection(format!(
                "no time is left of {:?}",
                self.patience
            )));
        }
        match self.run_on(&connection, statement).await {
            Err(fault) if fault.is_lost() => {
                count(&self.counters.lost_connections);
                connection.close();
                Err(fault.unanswered())
            }
            outcome => outcome,
        }
    }

    /// Runs one statement on a connection.
    pub(crate) async fn run_on(
        &self,
        client: &tokio_postgres::Client,
        statement: &Statement<'_>,
    ) -> Outcome<Vec<Row>> {
        count(&self.counters.round_trips);
        let sql = self.qualified(&statement.sql);
        let params: Vec<(&(dyn ToSql + Sync), Type)> = statement
            .params
            .iter()
            .map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone()))
            .collect();
        let mut answer = std::pin::pin!(client.query_typed(&sql, &params));
        let limit = self.statement_limit();
        if let Ok(answer) = tokio::time::timeout(limit, &mut answer).await {
            return self.answered(answer);
        }
        // Without the cancellation, a statement that waits for a lock would run after its caller has given
        // up. It may have completed just before the cancellation, which its answer shows.
        let cancel = client.cancel_token();
        let cancelled = async {
            // Boxed because it is large and rare.
            let _ = Box::pin(cancel.cancel_query(self.address.tls.clone())).await;
            answer.await
        };
        let patience = left().map_or(AFTER_CANCEL, |left| AFTER_CANCEL.min(left));
        match tokio::time::timeout(patience, cancelled).await {
            Ok(answer) => self.answered(answer).map_err(|fault| match fault.code() {
                Some(&SqlState::QUERY_CANCELED) => Fault::TimedOut(limit),
                _ => fault,
            }),
            Err(_) => Err(Fault::Silent(limit)),
        }
    }

    /// Queries the database's time.
    pub(crate) async fn ask_time(&self) -> Outcome<()> {
        let rows = self.read(&Statement::new(format!("SELECT {NOW}"))).await?;
        if let Some(row) = rows.first() {
            self.time.learn(column(row, 0)?);
        }
        Ok(())
    }

    /// Runs a read or an idempotent statement, with retries until it is answered or `patience` ends.
    pub(crate) async fn read(&self, statement: &Statement<'_>) -> Outcome<Vec<Row>> {
        let reading = async {
            let mut patience = Patience::new(self.patience);
            loop {
                match self.run(statement).await {
                    Err(fault) if fault.is_lost() && patience.wait().await => {}
                    outcome => return outcome,
                }
            }
        };
        self.within(reading).await
    }

    /// Replaces the mark before table names by the schema.
    pub(crate) fn qualified(&self, sql: &str) -> String {
        sql.replace('@', &self.schema)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

/// Quotes an identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the deadline of the call in progress.
fn deadline() -> Option<Instant> {
    DEADLINE.try_with(|deadline| *deadline).ok()
}

/// Returns how much time the call in progress has left.
fn left() -> Option<Duration> {
    deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// The retry limit of a call, and its backoff.
pub(crate) struct Patience {
    deadline: Instant,
    backoff: Duration,
}

impl Patience {
    /// Allows attempts for this long, or until the deadline of the call in progress.
    pub(crate) fn new(limit: Duration) -> Self {
        let own = Instant::now() + limit;
        Self {
            deadline: deadline().map_or(own, |deadline| deadline.min(own)),
            backoff: FIRST_BACKOFF,
        }
    }

    /// Waits before the next attempt. Returns `false` immediately if no time is left.
    pub(crate) async fn wait(&mut self) -> bool {
        // Jitter keeps conflicting writers from colliding again.
        let pause = self.backoff.mul_f64(0.5 + fastrand::f64());
        if Instant::now() + pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        true
    }

    /// Like [`Patience::wait`], after a lost race, where other writers finish soon.
    pub(crate) async fn wait_turn(&mut self) -> bool {
        self.backoff = self.backoff.min(MAX_TURN);
        self.wait().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        Address::parse(url, &PostgresStoreOptions::new(url)).unwrap()
    }

    #[test]
    fn a_remote_server_is_reached_by_tls_unless_configured_otherwise() {
        let mode = |url| address(url).config.get_ssl_mode();

        assert_eq!(mode("postgres://chef@db.example/kitchen"), SslMode::Require);
        assert_eq!(
            mode("postgres://chef@db.example/kitchen?sslmode=prefer"),
            SslMode::Require
        );
        assert_eq!(
            mode("postgres://chef@db.example/kitchen?sslmode=disable"),
            SslMode::Disable
        );
        assert_eq!(mode("postgres://chef@127.0.0.1/kitchen"), SslMode::Disable);
        assert_eq!(
            mode("postgres://chef@localhost/kitchen?sslmode=require"),
            SslMode::Require
        );
    }

    #[test]
    fn a_password_is_never_printed() {
        let url = "postgres://chef:leeks@db.example:5433/kitchen";
        let options = PostgresStoreOptions::new(url);
        let database = Database::new(&options).unwrap();

        for text in [
            format!("{options:?}"),
            format!("{database:?}"),
            database.place.clone(),
        ] {
            assert!(!text.contains("leeks"), "{text}");
        }
        assert_eq!(database.place, "db.example:5433/kitchen");
        let wrong = Address::parse("postgres://chef:leeks@db.example:port/kitchen", &options);
        assert!(!wrong.err().unwrap().to_string().contains("leeks"));
    }

    #[test]
    fn table_names_are_qualified_by_a_quoted_schema() {
        let options = PostgresStoreOptions::new("postgres://localhost/kitchen").schema("Tom's \"soup\"");
        let database = Database::new(&options).unwrap();

        assert_eq!(
            database.qualified("SELECT 1 FROM @session"),
            "SELECT 1 FROM \"Tom's \"\"soup\"\"\".session"
        );
    }
}
