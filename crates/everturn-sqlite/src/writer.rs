//! The one thread that writes.
//!
//! Saves that arrive while a transaction is open become part of it, and those that arrive while it is being made durable
//! share the next one. Each is under a savepoint of its own: one that fails takes nothing of its neighbours with it.
//! Nobody is answered before the commit.

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

/// How many requests may wait; more callers than that wait to ask.
const QUEUE: usize = 1024;

/// How many saves share a transaction at most, so that none waits long for the others.
const MAX_GROUP: usize = 256;

/// How long to wait for one more member of a group at most.
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
    /// Shares a transaction with others.
    Grouped(Box<dyn Work>),
    /// Has the connection for itself, outside any transaction.
    Alone(Box<dyn FnOnce(&mut Connection) + Send>),
}

/// A piece of a transaction, and somebody who waits for its result.
trait Work: Send {
    fn run(&mut self, writing: &mut Writing<'_>) -> Outcome<()>;
    /// Answers, after the commit or instead of it.
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
        // Whoever asked may have stopped waiting.
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
            room: Arc::new(Semaphore::new(QUEUE)),
        })
    }

    /// Does something in a transaction and waits until it is committed.
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

    /// Does something with the connection, between two transactions.
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
    /// How large the last two groups were, and how long it took to make the last durable.
    last_groups: [usize; 2],
    last_sync: Duration,
}

impl Thread {
    /// Works until the last handle is gone and the queue is empty.
    fn run(mut self, queue: &Receiver<Queued>) {
        let mut next = queue.recv().ok();
        while let Some(queued) = next.take() {
            match queued.job {
                Job::Grouped(work) => next = self.group(work, queue),
                Job::Alone(work) => {
                    // Whoever waits is told by the lost reply.
                    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| work(&mut self.connection)));
                }
            }
            next = next.or_else(|| queue.recv().ok());
        }
    }

    /// Runs a transaction of this piece and those that arrive meanwhile; gives back what cannot be part of it.
    fn group(&mut self, first: Box<dyn Work>, queue: &Receiver<Queued>) -> Option<Queued> {
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
                // Those that failed on their own keep their own reason.
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                    *outcome = Err(fault.clone());
                }
                outcomes.resize(group.len(), Err(fault));
                Vec::new()
            });
        self.last_groups = [group.len(), self.last_groups[0]];
        self.watchers.notice(changed);
        for (work, outcome) in group.into_iter().zip(outcomes) {
            work.settle(outcome.map_err(|fault| fault.into_error(&self.options.path)));
        }
        arrivals.leftover
    }

    /// Runs pieces in one transaction until no more arrive. Fills in how each went, and says which rows changed.
    fn transact(
        &mut self,
        group: &mut Vec<Box<dyn Work>>,
        outcomes: &mut Vec<Outcome<()>>,
        arrivals: &mut Arrivals<'_>,
    ) -> Outcome<Vec<Key>> {
        let db = &self.connection;
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
            // A full disk, for one, makes SQLite give up the whole transaction.
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

/// What may still become part of a transaction that is under way.
///
/// The members of the last groups were answered a moment ago, so the next saves of their sessions are on their way: a wait
/// for them, short beside what it takes to make a transaction durable, is cheaper than another transaction.
struct Arrivals<'a> {
    queue: &'a Receiver<Queued>,
    expected: usize,
    patience: Duration,
    leftover: Option<Queued>,
}

impl Arrivals<'_> {
    /// The next piece for a group of this size, unless it is time to commit.
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

/// Runs one piece so that its failure undoes it alone.
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

/// A transaction that is rolled back unless it is committed.
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
            // The connection says so itself if it is beyond help: the next transaction cannot begin.
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}
