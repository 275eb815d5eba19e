//! The thread that writes.
//!
//! Saves that arrive while a transaction is open join it, and saves that arrive while it is being made durable share the
//! next one. Each save has a savepoint of its own, so a failed save does not affect the others. Callers are answered after
//! the commit.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use everturn_core::{Error, Result, panic_error};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::body::{Decoder, Encoder};
use crate::cache::{Cache, Memory};
use crate::connection::{open_writer, retry};
use crate::fault::{Fault, Outcome};
use crate::options::SqliteStoreOptions;
use crate::read::Reading;
use crate::watch::{Key, Watchers};
use crate::write::Writing;

/// The capacity of the queue. Further callers wait to enqueue.
const QUEUE: usize = 1024;

/// The greatest number of saves in a transaction, so that none waits long for the others.
const MAX_GROUP: usize = 256;

/// The longest wait for one more save to join a transaction.
const MAX_PATIENCE: Duration = Duration::from_millis(2);

/// A handle to the thread.
pub(crate) struct Writer {
    jobs: Sender<Queued>,
    room: Arc<Semaphore>,
}

struct Queued {
    job: Job,
    _room: OwnedSemaphorePermit,
}

enum Job {
    /// Work that shares a transaction with others.
    Grouped(Box<dyn Work>),
    /// Work that needs the connection outside any transaction.
    Alone(Box<dyn FnOnce(&mut Connection) + Send>),
}

/// A part of a transaction, with the caller that waits for its result.
trait Work: Send {
    fn run(&mut self, writing: &mut Writing<'_>) -> Outcome<()>;
    /// Sends the result to the caller, after the commit or after it failed.
    fn settle(self: Box<Self>, committed: Result<()>);
}

struct Task<T, F> {
    work: Option<F>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnOnce(&mut Writing<'_>) -> Outcome<T> + Send> Work for Task<T, F> {
    fn run(&mut self, writing: &mut Writing<'_>) -> Outcome<()> {
        let work = self.work.take().expect("a task runs once");
        self.result = Some(work(writing)?);
        Ok(())
    }

    fn settle(self: Box<Self>, committed: Result<()>) {
        let Self { result, reply, .. } = *self;
        let result = committed.and_then(|()| result.ok_or_else(|| Error::internal("a task did not run")));
        // The caller may have stopped waiting.
        let _ = reply.send(result);
    }
}

impl Writer {
    /// Opens the database for writing and starts the thread.
    pub(crate) fn start(
        options: SqliteStoreOptions,
        memory: Arc<Mutex<Memory>>,
        watchers: Arc<Watchers>,
    ) -> Result<Self> {
        let connection = open_writer(&options).map_err(|fault| fault.into_error(&options.path))?;
        let encoder = Encoder::new(options.blob_threshold, options.compress_over)?;
        let (jobs, queue) = channel();
        let thread = Thread {
            connection,
            encoder,
            decoder: Decoder::new()?,
            options,
            memory,
            watchers,
            last_groups: [1; 2],
            last_sync: Duration::ZERO,
        };
        std::thread::Builder::new()
            .name("everturn-write".to_owned())
            .spawn(move || thread.run(&queue))?;
        Ok(Self {
            jobs,
            // Bounds the queue: without it a burst of saves would hold all its states in memory.
            room: Arc::new(Semaphore::new(QUEUE)),
        })
    }

    /// Runs `work` in a transaction and waits until it is committed.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writing<'_>) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Grouped(Box::new(Task {
            work: Some(work),
            result: None,
            reply,
        })))
        .await?;
        answer.await.map_err(|_| stopped())?
    }

    /// Runs `work` on the connection, between two transactions.
    pub(crate) async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Alone(Box::new(move |connection| {
            let _ = reply.send(work(connection));
        }));
        self.send(job).await?;
        answer.await.map_err(|_| stopped())
    }

    async fn send(&self, job: Job) -> Result<()> {
        // The permit travels with the job and returns when the job is done.
        let room = Arc::clone(&self.room).acquire_owned().await?;
        self.jobs.send(Queued { job, _room: room }).map_err(|_| stopped())
    }
}

fn stopped() -> Error {
    Error::internal("the thread that writes the session database has stopped: open the store again")
}

struct Thread {
    connection: Connection,
    encoder: Encoder,
    decoder: Decoder,
    options: SqliteStoreOptions,
    memory: Arc<Mutex<Memory>>,
    watchers: Arc<Watchers>,
    /// The sizes of the last two transactions, and how long it took to make the last one durable.
    last_groups: [usize; 2],
    last_sync: Duration,
}

impl Thread {
    /// Works until the last handle is dropped and the queue is empty.
    fn run(mut self, queue: &Receiver<Queued>) {
        let mut next = queue.recv().ok();
        while let Some(queued) = next.take() {
            match queued.job {
                Job::Grouped(work) => next = self.group(work, queue),
                Job::Alone(work) => {
                    // The caller learns of it from the dropped reply.
                    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| work(&mut self.connection)));
                }
            }
            next = next.or_else(|| queue.recv().ok());
        }
    }

    /// Runs a transaction of this part and of those that arrive meanwhile. Returns the first job that cannot join it.
    fn group(&mut self, first: Box<dyn Work>, queue: &Receiver<Queued>) -> Option<Queued> {
        // Concurrent callers return together after a commit and come back together. Waiting a little for as many as last
        // time lets them share the next one.
        let mut arrivals = Arrivals {
            queue,
            expected: self.last_groups[0].max(self.last_groups[1]),
            patience: (self.last_sync / 2).min(MAX_PATIENCE),
            leftover: None,
        };
        let (mut group, mut outcomes) = (vec![first], Vec::new());
        let changed = self
            .transact(&mut group, &mut outcomes, &mut arrivals)
            .unwrap_or_else(|fault| {
                // A part that failed by itself keeps its own error.
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                    *outcome = Err(fault.clone());
                }
                outcomes.resize(group.len(), Err(fault));
                Vec::new()
            });
        self.last_groups = [group.len(), self.last_groups[0]];
        // After the commit: a watcher that reads at once must find the new status.
        self.watchers.notice(changed);
        for (work, outcome) in group.into_iter().zip(outcomes) {
            work.settle(outcome.map_err(|fault| fault.into_error(&self.options.path)));
        }
        arrivals.leftover
    }

    /// Runs parts in one transaction until no more arrive. Records the outcome of each, and returns the changed rows.
    fn transact(
        &mut self,
        group: &mut Vec<Box<dyn Work>>,
        outcomes: &mut Vec<Outcome<()>>,
        arrivals: &mut Arrivals<'_>,
    ) -> Outcome<Vec<Key>> {
        let db = &self.connection;
        // `IMMEDIATE` takes the write lock at the start. A transaction that took it later could fail in its middle.
        retry(self.options.busy_timeout, || {
            Ok(db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?)
        })?;
        let transaction = Open(db);
        let reading = Reading {
            db,
            decoder: &mut self.decoder,
            cache: Cache::new(&self.memory),
        };
        let mut writing = Writing {
            reading,
            encoder: &mut self.encoder,
            changed: Vec::new(),
        };
        while let Some(work) = group.get_mut(outcomes.len()) {
            let outcome = savepoint(&mut writing, work.as_mut());
            // Some failures, such as a full disk, make SQLite roll back the whole transaction.
            if db.is_autocommit() {
                let fault = outcome.err();
                return Err(fault.unwrap_or_else(|| Fault::damaged("the transaction ended by itself")));
            }
            outcomes.push(outcome);
            group.extend(arrivals.next(group.len()));
        }
        let start = Instant::now();
        transaction.commit()?;
        self.last_sync = start.elapsed();
        let Writing { reading, changed, .. } = writing;
        reading.cache.publish();
        Ok(changed)
    }
}

/// The saves that may still join an open transaction.
///
/// The callers of the last transactions were answered a moment ago, so the next saves of their sessions are likely to
/// arrive. Waiting for them, for a fraction of what making a transaction durable takes, is cheaper than another transaction.
struct Arrivals<'a> {
    queue: &'a Receiver<Queued>,
    expected: usize,
    patience: Duration,
    leftover: Option<Queued>,
}

impl Arrivals<'_> {
    /// Returns the next part for a transaction of this size; `None` if it is time to commit.
    fn next(&mut self, size: usize) -> Option<Box<dyn Work>> {
        if size >= MAX_GROUP || self.leftover.is_some() {
            return None;
        }
        let patience = if size < self.expected {
            self.patience
        } else {
            Duration::ZERO
        };
        match self.queue.recv_timeout(patience).ok()? {
            Queued {
                job: Job::Grouped(work),
                ..
            } => Some(work),
            other => {
                self.leftover = Some(other);
                None
            }
        }
    }
}

/// Runs one part in a savepoint, so that its failure undoes it alone.
fn savepoint(writing: &mut Writing<'_>, work: &mut dyn Work) -> Outcome<()> {
    let db = writing.reading.db;
    let known = writing.changed.len();
    db.prepare_cached("SAVEPOINT piece")?.execute([])?;
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| work.run(writing)))
        .unwrap_or_else(|payload| Err(panic_error("a change of a session row", payload.as_ref()).into()));
    if outcome.is_ok() {
        writing.reading.cache.keep();
    } else {
        writing.reading.cache.forget();
        writing.changed.truncate(known);
        if db.is_autocommit() {
            return outcome;
        }
        db.prepare_cached("ROLLBACK TO piece")?.execute([])?;
    }
    db.prepare_cached("RELEASE piece")?.execute([])?;
    outcome
}

/// A transaction that is rolled back on drop unless it was committed.
struct Open<'a>(&'a Connection);

impl Open<'_> {
    fn commit(self) -> Outcome<()> {
        self.0.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // If the rollback fails, the next transaction cannot begin and reports it.
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}
