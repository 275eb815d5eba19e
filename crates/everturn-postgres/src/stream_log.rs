//! A stream log in PostgreSQL, readable by other processes and after a restart.

mod live;
mod partitions;
mod rows;
mod stream_options;
mod stream_reader;
mod stream_writer;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::Clock;
use everturn_core::Result;
use everturn_core::stream_log::{
    Entries, Position, StreamEvent, StreamKey, StreamLog, StreamSubject, StreamWriter, already_exists,
    erased, not_found,
};
use everturn_sql::entries;
use parking_lot::Mutex;

use self::live::Live;
use self::partitions::SlotSweep;
pub use self::stream_options::PostgresStreamLogOptions;
use self::stream_reader::Reader;
use self::stream_writer::Writer;
use crate::connection::Database;
use crate::fault::Outcome;
use crate::row::check_id;
use crate::schema::Schema;

/// The tables of the log.
const MIGRATIONS: &[&str] = &[include_str!("stream_log/schema/1.sql")];

fn tables(name: &str) -> Schema<'_> {
    Schema {
        name,
        migrations: MIGRATIONS,
    }
}

/// A stream log in a PostgreSQL database, which any number of processes and machines may share.
///
/// ```no_run
/// use everturn_core::stream_log::{JsonText, Position, StreamKey, StreamLog};
/// use everturn_postgres::PostgresStreamLog;
/// use futures::StreamExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
/// let log = PostgresStreamLog::open("postgres://chef@db.example/kitchen").await?;
/// let key = StreamKey::new("ann", "dinner");
/// log.open(&key).await?.finish(Ok(JsonText::of(&"soup")?)).await?;
///
/// let on_another_machine = PostgresStreamLog::open("postgres://chef@db.example/kitchen").await?;
/// assert_eq!(on_another_machine.read(&key, Position::START).await?.count().await, 1);
/// # Ok(()) }
/// ```
///
/// # Guarantees
///
/// The log gives all guarantees of [`everturn_core::stream_log`]. In particular:
///
/// - **Visibility**: a reader sees a chunk when it is in the database: within about 20 ms in the process that
///   writes it, 100 ms in others.
/// - **Crash of the process**: every event that a reader has seen, and every finished stream, survives.
/// - **Crash of the server, or power loss**: the most recent chunks may be lost, because a write does not
///   wait until they are on the device.
/// - **Cost of writes**: at most one statement every 20 ms for each stream that has new chunks, for any
///   number of chunks.
/// - **Size of a stream**: 64 MiB of chunks, or
///   [`max_stream_bytes`](PostgresStreamLogOptions::max_stream_bytes). While a stream is written, it is also
///   in its writer's memory.
/// - **Expired streams** are removed at once. Their chunks are dropped in whole partitions, with chunks of
///   the same age.
/// - **Death of a process**: readers end its streams with `UNAVAILABLE` when its lease of 15 s has lapsed.
///
/// A clone is another handle to the same log.
#[derive(Clone)]
pub struct PostgresStreamLog(Arc<Inner>);

struct Inner {
    db: Arc<Database>,
    options: PostgresStreamLogOptions,
    live: Arc<Mutex<HashMap<StreamKey, Arc<Live>>>>,
    slots: SlotSweep,
}

impl PostgresStreamLogOptions {
    /// Opens the log, creating the tables if they do not exist.
    ///
    /// # Errors
    /// As [`PostgresStoreOptions::open`](crate::PostgresStoreOptions::open).
    pub async fn open(self) -> Result<PostgresStreamLog> {
        let db = Database::new(&self.database)?;
        let ready = async {
            tables(&self.database.schema)
                .migrate(&db, self.database.migrate)
                .await?;
            db.ask_time().await
        };
        ready.await.map_err(|fault| fault.into_error(&db.place))?;
        let db = Arc::new(db);
        db.close_idle_connections();
        let mut options = self;
        if options.clock.is_none() {
            let db = Arc::clone(&db);
            options.clock = Some(Clock::new(move || db.time.now()));
        }
        Ok(PostgresStreamLog(Arc::new(Inner {
            db,
            slots: SlotSweep::new(options.keep_for),
            options,
            live: Arc::default(),
        })))
    }
}

impl PostgresStreamLog {
    /// Opens the log in a database with the default settings, in the schema `everturn_streams`.
    ///
    /// # Errors
    /// As [`PostgresStreamLogOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self> {
        Self::options(url).open().await
    }

    /// Returns the settings of a log in a database, to change before it is opened.
    pub fn options(url: impl AsRef<str>) -> PostgresStreamLogOptions {
        PostgresStreamLogOptions::new(url.as_ref())
    }

    /// Returns the SQL that creates the tables in a schema, or migrates those of version `from`, for
    /// operators who run migrations themselves. Version 0 means that there are no tables yet.
    pub fn migration_sql(schema: &str, from: usize) -> String {
        tables(schema).migration(from)
    }

    fn result<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|fault| fault.into_error(&self.0.db.place))
    }
}

#[async_trait]
impl StreamLog for PostgresStreamLog {
    async fn open(&self, key: &StreamKey) -> Result<Box<dyn StreamWriter>> {
        self.result(check_id("stream scope", key.scope()))?;
        self.result(check_id("stream id", key.id()))?;
        let options = &self.0.options;
        let (now, lease, keep_for) = (options.now(), options.lease, options.keep_for);
        let opening = rows::open(&self.0.db, key, now, lease, keep_for, &self.0.slots);
        let opened = self.0.db.within(opening).await;
        let row = self.result(opened)?.ok_or_else(|| already_exists(key))?;
        let live = Arc::new(Live::new(row, options.clone()));
        self.0.live.lock().insert(key.clone(), Arc::clone(&live));
        Ok(Box::new(Writer::start(
            Arc::clone(&self.0.db),
            key.clone(),
            live,
            options.clone(),
            Arc::clone(&self.0.live),
        )))
    }

    async fn read(&self, key: &StreamKey, after: Position) -> Result<Entries> {
        let live = self.0.live.lock().get(key).cloned();
        let reader = match live {
            Some(live) if live.is_expired() => return Err(not_found()),
            Some(live) => Reader::here(live),
            None => {
                let found = rows::find(&self.0.db, key, self.0.options.expired_before()).await;
                let row = self.result(found)?.ok_or_else(not_found)?;
                Reader::elsewhere(Arc::clone(&self.0.db), row, self.0.options.clone())
            }
        };
        Ok(entries(reader, after))
    }

    async fn stop(&self, key: &StreamKey) -> Result<()> {
        let live = self.0.live.lock().get(key).cloned();
        if let Some(live) = live {
            if live.is_expired() {
                return Err(not_found());
            }
            live.stop.cancel();
            return Ok(());
        }
        let found = rows::stop(&self.0.db, key, self.0.options.expired_before()).await;
        if self.result(found)? {
            Ok(())
        } else {
            Err(not_found())
        }
    }

    async fn erase(&self, subject: &StreamSubject) -> Result<u64> {
        let gone = self.result(rows::erase(&self.0.db, subject).await)?;
        self.0.live.lock().retain(|_, stream| {
            let is_kept = !gone.contains(&stream.row);
            if !is_kept {
                // A stream that was finished meanwhile has ended already.
                let _ = stream.end(StreamEvent::Failed(erased()));
            }
            is_kept
        });
        Ok(gone.len() as u64)
    }
}

everturn_core::opaque_debug!(PostgresStreamLog, 0.db.place);
