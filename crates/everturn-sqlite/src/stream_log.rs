//! A stream log in a SQLite file, readable by other processes and after a restart.

mod live;
mod rows;
mod shared;
mod stream_options;
mod stream_reader;
mod stream_writer;
mod thread;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use async_trait::async_trait;
use everturn_core::stream_log::{
    Entries, Position, StreamKey, StreamLog, StreamSubject, StreamWriter, not_found,
};
use everturn_core::{Error, Result};
use everturn_sql::entries;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

use self::rows::Found;
use self::shared::Shared;
pub use self::stream_options::SqliteStreamLogOptions;
use self::stream_reader::Reader;
use self::thread::{Job, Thread};
use crate::connection::{Pool, open_reader, open_writer};
use crate::fault::Outcome;

/// A stream log in a separate SQLite database, which any number of processes may share.
///
/// It is separate from the session store's database because streams are short-lived and written often;
/// neither should wait for the other.
///
/// ```
/// use everturn_core::stream_log::{JsonText, Position, StreamKey, StreamLog};
/// use everturn_sqlite::SqliteStreamLog;
/// use futures::StreamExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("everturn-streams-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("streams.db");
/// let log = SqliteStreamLog::open(&path).await?;
/// let key = StreamKey::new("ann", "dinner");
/// log.open(&key).await?.finish(Ok(JsonText::of(&"soup")?)).await?;
/// drop(log);
///
/// let after_a_restart = SqliteStreamLog::open(&path).await?;
/// assert_eq!(after_a_restart.read(&key, Position::START).await?.count().await, 1);
/// # drop(after_a_restart);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok(()) }
/// ```
///
/// # Guarantees
///
/// The log gives all guarantees of [`everturn_core::stream_log`]. In particular:
///
/// - **Visibility**: a reader sees a chunk when it is in the file: within about 20 ms in the process that
///   writes it, 50 ms in others.
/// - **Crash of the process**: every event that a reader has seen, and every finished stream, survives.
/// - **Power loss**: with [`Durability::Full`](crate::Durability::Full) the same; with
///   [`Durability::Normal`](crate::Durability::Normal) the most recent events
///   may be lost.
/// - **Cost of writes**: at most one transaction every 20 ms for all streams together, for any number of
///   chunks.
/// - **Size of a stream**: 64 MiB of chunks, or
///   [`max_stream_bytes`](SqliteStreamLogOptions::max_stream_bytes).
/// - **Size of the log**: 128 MiB for each owner
///   ([`max_owner_bytes`](SqliteStreamLogOptions::max_owner_bytes)) and 512 MiB in all
///   ([`max_bytes`](SqliteStreamLogOptions::max_bytes)). The oldest finished streams are removed first.
/// - **Cost of idle readers**: none; one poll of the file serves all readers in a process.
/// - **Damage**: every batch and every end has a checksum. A changed or missing one is a `DATA_LOSS` error
///   that names the stream.
/// - **Erasure**: the text of erased and expired streams is overwritten in the file, and the write-ahead log
///   is emptied. This happens immediately after an erasure, and about a second after an expiry while a
///   process has the log open; otherwise when the log is next opened.
/// - **Death of a process**: other processes end its streams with `UNAVAILABLE` when its lease of 15 s has
///   lapsed.
///
/// A clone is another handle to the same log. Dropping the last handle, writer and reader closes the database
/// as [`SqliteStreamLog::close`] does, and blocks meanwhile.
#[derive(Clone)]
pub struct SqliteStreamLog(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    jobs: Mutex<Option<Sender<Job>>>,
    readers: Pool<Connection>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Inner {
    /// Ends the thread after all queued jobs, and blocks until it has closed the database.
    fn close(&self) {
        self.readers.close_idle();
        self.jobs.lock().take();
        let thread = self.thread.lock().take();
        // A job that owns the last handle drops it on this thread, which cannot join itself and ends
        // afterwards.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panicked thread has released its waiting callers.
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl SqliteStreamLog {
    /// Opens the log in a file with the default settings, creating the file if it does not exist.
    ///
    /// # Errors
    /// As [`SqliteStreamLogOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options(path).open().await
    }

    /// Returns the settings of a log in a file, to change before it is opened.
    pub fn options(path: impl AsRef<Path>) -> SqliteStreamLogOptions {
        SqliteStreamLogOptions::new(path.as_ref())
    }

    /// Returns the file of the log.
    pub fn path(&self) -> &Path {
        &self.0.shared.options.path
    }

    fn start(options: SqliteStreamLogOptions) -> Result<Self> {
        let path = options.path.clone();
        Self::begin(options).map_err(|fault| fault.into_error(&path))
    }

    fn begin(options: SqliteStreamLogOptions) -> Outcome<Self> {
        let (path, patience) = (options.path.clone(), options.busy_timeout);
        let db = open_writer(&path, patience, options.durability, &rows::STREAMS)?;
        let readers = Pool::open(options.readers, move || open_reader(&path, patience))?;
        let shared = Arc::new(Shared::new(options));
        let thread = Thread::new(db, Arc::clone(&shared))?;
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new()
            .name("everturn-streams".to_owned())
            .spawn(move || thread.run(&queue))
            .map_err(Error::from)?;
        Ok(Self(Arc::new(Inner {
            shared,
            jobs: Mutex::new(Some(jobs)),
            readers,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// Closes the database: writes all queued events, ends the streams that are still open with
    /// `UNAVAILABLE`, moves everything into the database file and removes the write-ahead log.
    ///
    /// Afterwards every method of every handle, writer and reader fails. The write-ahead log stays while
    /// another process has the database open.
    ///
    /// # Errors
    /// `INTERNAL` if the runtime is shutting down.
    pub async fn close(&self) -> Result<()> {
        self.0.readers.close().await;
        let inner = Arc::clone(&self.0);
        Ok(tokio::task::spawn_blocking(move || inner.close()).await?)
    }

    fn send(&self, job: Job) -> Result<()> {
        let jobs = self.0.jobs.lock();
        let is_sent = jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if is_sent { Ok(()) } else { Err(stopped()) }
    }

    /// Reads the file on a thread that may block.
    async fn query<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        let _permit = self.0.readers.permit().await?;
        let inner = Arc::clone(&self.0);
        let outcome = tokio::task::spawn_blocking(move || inner.readers.with(work)).await?;
        outcome.map_err(|fault| fault.into_error(self.path()))
    }

    async fn after(&self, row: i64, position: Position) -> Result<Option<Found>> {
        self.query(move |db| rows::after(db, row, position)).await
    }
}

#[async_trait]
impl StreamLog for SqliteStreamLog {
    async fn open(&self, key: &StreamKey) -> Result<Box<dyn StreamWriter>> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Open {
            key: key.clone(),
            log: self.clone(),
            reply,
        })?;
        Ok(Box::new(answer.await.map_err(|_| stopped())??))
    }

    async fn read(&self, key: &StreamKey, after: Position) -> Result<Entries> {
        let live = self.0.shared.live.lock().get(key).cloned();
        let reader = if let Some(live) = live {
            Reader::here(self.clone(), live)
        } else {
            let (key, now) = (key.clone(), self.0.shared.options.now());
            let row = self.query(move |db| rows::find(db, &key, now)).await?;
            let row = row.ok_or_else(not_found)?;
            let reader = Reader::elsewhere(self.clone(), row);
            self.send(Job::Poll)?;
            reader
        };
        Ok(entries(reader, after))
    }

    async fn stop(&self, key: &StreamKey) -> Result<()> {
        if let Some(live) = self.0.shared.live.lock().get(key) {
            live.stop.cancel();
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        self.send(Job::Stop {
            key: key.clone(),
            reply,
        })?;
        let found = answer.await.map_err(|_| stopped())??;
        if found { Ok(()) } else { Err(not_found()) }
    }

    async fn erase(&self, subject: &StreamSubject) -> Result<u64> {
        // An idle reader may hold an old view of the file, which keeps the write-ahead log.
        self.0.readers.close_idle();
        let (reply, answer) = oneshot::channel();
        let subject = subject.clone();
        self.send(Job::Erase { subject, reply })?;
        answer.await.map_err(|_| stopped())?
    }
}

fn stopped() -> Error {
    Error::failed_precondition("the stream log is closed: open it again")
}

everturn_core::opaque_debug!(SqliteStreamLog, 0.shared.options.path);
