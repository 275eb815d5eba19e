//! The thread that writes.
//!
//! Saves that arrive at about the same time share a transaction, and so the cost of making it durable. All of
//! them are prepared before the transaction begins, so that other processes wait only while rows are written.
//! A save that was prepared from data that has changed since is prepared again, for the next transaction. A
//! failed save does not affect the others. Callers receive their results after the commit.
//!
//! The deadline of a job is relative to its call. While another process holds the write lock, the thread
//! continues to accept jobs and fails each at its own deadline, so the jobs' waits do not add up.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use everturn_core::{Error, Result, panic_error};
use everturn_sql::{Key, StoreFault};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::body::Decoder;
use crate::cache::{Cache, Memory};
use crate::connection::{data_version, deadline_after, empty_log, open_writer};
use crate::fault::{Fault, Outcome, closed};
use crate::file_identity::FileIdentity;
use crate::latest_cache::{Changes, LatestCache};
use crate::options::SqliteStoreOptions;
use crate::prepare::{Preparing, Rewrites};
use crate::queue::Queue;
use crate::read::Reading;
use crate::schema::SESSIONS;
use crate::statement::Statements;
use crate::watch::Watchers;
use crate::work::{Prepared, Work, task};
use crate::write::Writing;

/// The capacity of the queue. Further callers wait to enqueue.
const QUEUE: usize = 1024;

/// The greatest number of saves in a transaction, so that none waits long for the others.
const MAX_GROUP: usize = 256;

/// The approximate size of a transaction in prepared bytes. A larger save has a separate transaction.
const MAX_GROUP_BYTES: usize = 16 * 1024 * 1024;

/// The least number of attempts before a save fails at its deadline because other saves keep changing the
/// data that it was prepared from.
const MIN_ATTEMPTS: u32 = 3;

/// The number of transactions with a savepoint for each save, after a transaction was undone because one of
/// its saves failed.
const CAREFUL: u32 = 16;

/// The longest wait for one more save to join a transaction.
const MAX_PATIENCE: Duration = Duration::from_millis(2);

/// The idle time after which the log is moved into the database file.
const IDLE: Duration = Duration::from_millis(200);

/// A handle to the thread.
pub(crate) struct Writer {
    jobs: Arc<Queue<Queued>>,
    room: Arc<Semaphore>,
    busy_timeout: Duration,
    closing: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Queued {
    job: Job,
    /// The time at which the job fails if another process still holds the lock.
    deadline: Instant,
    room: OwnedSemaphorePermit,
}

enum Job {
    /// Work that shares a transaction with others.
    Grouped(Box<dyn Work>),
    /// Work that needs the connection outside any transaction, and observes the deadline itself.
    Alone(AloneWork),
}

/// Work on the connection, with the deadline for waiting for a lock.
type AloneWork = Box<dyn FnOnce(&mut Connection, Instant) + Send>;

/// A save that waits for its transaction.
struct Part {
    work: Box<dyn Work>,
    deadline: Instant,
    attempts: u32,
    rewrites: Rewrites,
    _room: OwnedSemaphorePermit,
}

impl Writer {
    /// Opens the database for writing and starts the thread.
    pub(crate) fn start(
        options: SqliteStoreOptions,
        memory: Arc<Mutex<Memory>>,
        watchers: Arc<Watchers>,
        latest: Arc<LatestCache>,
    ) -> Result<Self> {
        let connection = open_writer(&options.path, options.busy_timeout, options.durability, &SESSIONS)
            .map_err(|fault| fault.into_error(&options.path))?;
        let file = FileIdentity::of(&options.path);
        let jobs = Arc::new(Queue::new());
        let (busy_timeout, closing) = (options.busy_timeout, Arc::<AtomicBool>::default());
        let thread = Thread {
            jobs: Arc::clone(&jobs),
            connection,
            decoder: Decoder::default(),
            options,
            memory,
            watchers,
            latest,
            closing: Arc::clone(&closing),
            waiting: VecDeque::new(),
            alone: VecDeque::new(),
            file,
            is_log_ahead: true,
            careful: 0,
            last_groups: [1; 2],
            last_sync: Duration::ZERO,
        };
        let thread = std::thread::Builder::new()
            .name("everturn-write".to_owned())
            .spawn(move || thread.run())?;
        Ok(Self {
            jobs,
            // Bounds the queue: without it a burst of saves would hold all its states in memory.
            room: Arc::new(Semaphore::new(QUEUE)),
            busy_timeout,
            closing,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs `work` in a transaction and waits until it is committed. It may run more than once.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut Writing<'_>) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        self.prepare_and_write(|_| Ok(Prepared::Write((), 0)), move |writing, ()| work(writing))
            .await
    }

    /// Runs `prepare` without a lock, then `write` in a transaction, and waits until it is committed.
    ///
    /// Both run again if `write` finds that the prepared data is [stale](crate::fault::Fault::Stale).
    pub(crate) async fn prepare_and_write<P: Send + 'static, T: Send + 'static>(
        &self,
        prepare: impl FnMut(&mut Preparing<'_>) -> Outcome<Prepared<P, T>> + Send + 'static,
        write: impl FnMut(&mut Writing<'_>, P) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        let (work, answer) = task(prepare, write);
        self.send(Job::Grouped(work)).await?;
        answer.await.map_err(|_| self.stopped())?
    }

    /// Runs `work` on the connection, between two transactions. `work` gets the deadline for waiting for a
    /// lock.
    pub(crate) async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, Instant) -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Alone(Box::new(move |connection, deadline| {
            let _ = reply.send(work(connection, deadline));
        }));
        self.send(job).await?;
        answer.await.map_err(|_| self.stopped())
    }

    async fn send(&self, job: Job) -> Result<()> {
        let deadline = deadline_after(self.busy_timeout);
        // The permit travels with the job and returns when the job is done.
        let room = Arc::clone(&self.room).acquire_owned().await?;
        if self.jobs.push(Queued { job, deadline, room }) {
            Ok(())
        } else {
            Err(self.stopped())
        }
    }

    /// Ends the thread after all queued jobs, and blocks until it has closed the database.
    ///
    /// Jobs that would have to wait for another process fail instead.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.jobs.close();
        let thread = lock(&self.thread).take();
        // A job that owns the last handle drops it on this thread, which cannot join itself and ends
        // afterwards.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic of the thread has been reported to its callers.
            let _ = thread.join();
        }
    }

    fn stopped(&self) -> Error {
        if self.closing.load(Ordering::Relaxed) {
            closed()
        } else {
            Error::internal("the thread that writes the session database has stopped: open the store again")
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a single assignment.
    mutex.lock()
}

struct Thread {
    jobs: Arc<Queue<Queued>>,
    connection: Connection,
    decoder: Decoder,
    options: SqliteStoreOptions,
    memory: Arc<Mutex<Memory>>,
    watchers: Arc<Watchers>,
    latest: Arc<LatestCache>,
    closing: Arc<AtomicBool>,
    /// Saves that have arrived, and saves to prepare again.
    waiting: VecDeque<Part>,
    /// Jobs that arrived among saves and run after them.
    alone: VecDeque<(AloneWork, Instant)>,
    file: FileIdentity,
    /// Whether the log may have changes that the database file lacks.
    is_log_ahead: bool,
    /// The number of remaining transactions with a savepoint for each save.
    careful: u32,
    /// The sizes of the last two transactions, and how long it took to make the last one durable.
    last_groups: [usize; 2],
    last_sync: Duration,
}

impl Thread {
    /// Runs jobs until the last handle is dropped and the queue is empty, then closes the database.
    fn run(mut self) {
        while self.has_work() {
            if !self.waiting.is_empty() {
                self.gather();
                self.group();
            }
            while let Some((work, deadline)) = self.alone.pop_front() {
                // The dropped reply reports a panic to the caller.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(|| work(&mut self.connection, deadline)));
                self.latest.forget();
            }
        }
        // This fails while another process uses the database; then its last connection empties the log.
        let _ = empty_log(&self.connection);
    }

    /// Waits for work; `false` if all handles are dropped.
    fn has_work(&mut self) -> bool {
        if self.waiting.is_empty() {
            let jobs = self.next();
            self.accept(jobs);
        }
        !self.waiting.is_empty() || !self.alone.is_empty()
    }

    /// Waits for the next jobs; none if all handles are dropped. While idle, moves the log into the database
    /// file, so that a process that ends without closing the store leaves a complete file.
    fn next(&mut self) -> VecDeque<Queued> {
        if std::mem::take(&mut self.is_log_ahead) {
            let jobs = self.jobs.take(1, Some(IDLE));
            if !jobs.is_empty() {
                self.is_log_ahead = true;
                return jobs;
            }
            // This fails while readers use older views; then SQLite does it later.
            let _ = self
                .connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
        self.jobs.take(1, None)
    }

    fn accept(&mut self, jobs: VecDeque<Queued>) {
        for queued in jobs {
            match queued.job {
                Job::Grouped(work) => self.waiting.push_back(Part {
                    work,
                    deadline: queued.deadline,
                    attempts: 0,
                    rewrites: Rewrites::default(),
                    _room: queued.room,
                }),
                Job::Alone(work) => self.alone.push_back((work, queued.deadline)),
            }
        }
    }

    fn accept_ready(&mut self) {
        let jobs = self.jobs.take_ready();
        self.accept(jobs);
    }

    /// Waits for likely further saves before the lock is taken.
    ///
    /// The callers of the last transactions have just received their results, so the next saves of their
    /// sessions are likely to arrive. Waiting for a fraction of the time that a durable commit takes is
    /// cheaper than another transaction.
    fn gather(&mut self) {
        let expected = self.last_groups[0].max(self.last_groups[1]).min(MAX_GROUP);
        let patience = (self.last_sync / 2).min(MAX_PATIENCE);
        while self.waiting.len() < expected && self.alone.is_empty() {
            let jobs = self.jobs.take(expected - self.waiting.len(), Some(patience));
            if jobs.is_empty() {
                break;
            }
            self.accept(jobs);
        }
    }

    /// Runs a transaction of the waiting saves, and answers their callers.
    fn group(&mut self) {
        let prepared = self.prepare();
        let Some(mut parts) = self.begin(prepared) else {
            return;
        };
        let mut outcomes = Vec::new();
        let is_careful = self.careful > 0;
        self.careful = self.careful.saturating_sub(1);
        let changed = self
            .transact(&mut parts, &mut outcomes, is_careful)
            .unwrap_or_else(|fault| {
                // A part that failed by itself keeps its own error.
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                    *outcome = Err(fault.clone());
                }
                outcomes.resize(parts.len(), Err(fault));
                Vec::new()
            });
        self.last_groups = [parts.len(), self.last_groups[0]];
        // After the commit: a watcher that reads at once must find the new status.
        self.watchers.notice(changed);
        let mut again = VecDeque::new();
        for (part, outcome) in parts.into_iter().zip(outcomes) {
            let may_try = part.attempts < MIN_ATTEMPTS || Instant::now() < part.deadline;
            if may_try && matches!(outcome, Err(Fault::Stale)) {
                again.push_back(part);
            } else {
                self.finish(part, outcome);
            }
        }
        again.append(&mut self.waiting);
        self.waiting = again;
    }

    fn finish(&self, part: Part, outcome: Outcome<()>) {
        part.work
            .finish(outcome.map_err(|fault| fault.into_error(&self.options.path)));
    }

    /// Prepares the waiting saves and the saves that arrive meanwhile, up to the size of a transaction.
    /// Answers saves that have nothing to write.
    fn prepare(&mut self) -> Vec<Part> {
        let (mut prepared, mut room) = (Vec::new(), MAX_GROUP_BYTES);
        let closing = self.closing.load(Ordering::Relaxed);
        while prepared.len() < MAX_GROUP && room > 0 && !self.waiting.is_empty() {
            let batch = self.waiting.len().min(MAX_GROUP - prepared.len());
            let outcomes = self.prepare_batch(batch, &mut room);
            let is_busy = outcomes
                .iter()
                .any(|outcome| matches!(outcome, Err(fault) if fault.is_busy()));
            for outcome in outcomes {
                let Some(part) = self.waiting.pop_front() else {
                    break;
                };
                match outcome {
                    Ok(true) => prepared.push(part),
                    Ok(false) => self.finish(part, Ok(())),
                    // Another process recovers the log. The wait is the same as for the lock.
                    Err(fault) if fault.is_busy() && !closing && Instant::now() < part.deadline => {
                        self.waiting.push_back(part);
                    }
                    Err(fault) => self.finish(part, Err(fault)),
                }
            }
            if is_busy || !self.alone.is_empty() {
                break;
            }
            // In a separate batch: they must not read an older state than their callers may have seen.
            self.accept_ready();
        }
        prepared
    }

    /// Prepares the first `count` waiting saves in one read transaction, up to `room` bytes. Returns for each
    /// whether it has something to write.
    fn prepare_batch(&mut self, count: usize, room: &mut usize) -> Vec<Outcome<bool>> {
        let mut outcomes = Vec::with_capacity(count);
        let begun = self.connection.prepare_cached("BEGIN");
        if let Err(error) = begun.and_then(|mut begin| begin.execute([])) {
            outcomes.resize(count, Err(error.into()));
            return outcomes;
        }
        let transaction = Open(&self.connection);
        let mut preparing = Preparing {
            reading: Reading {
                db: &self.connection,
                decoder: &mut self.decoder,
                cache: Cache::new(&self.memory),
            },
            encoding: self.options.encoding,
        };
        for part in self.waiting.iter_mut().take(count) {
            if *room == 0 {
                break;
            }
            part.attempts += 1;
            let work = || {
                preparing.rewrites(&mut part.rewrites)?;
                part.work.prepare(&mut preparing)
            };
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
                Err(panic_error("a change of a session row", payload.as_ref()).into())
            });
            if outcome.is_ok() {
                preparing.reading.cache.keep();
            } else {
                preparing.reading.cache.forget();
            }
            outcomes.push(outcome.map(|bytes| {
                *room = room.saturating_sub(bytes.unwrap_or(0));
                bytes.is_some()
            }));
        }
        preparing.reading.cache.publish();
        // A read transaction changes nothing, whether it commits or not.
        let _ = transaction.commit();
        outcomes
    }

    /// Begins a transaction once no other process holds the write lock. Returns the parts that have not
    /// expired.
    ///
    /// Meanwhile more saves arrive, and each is answered at its own deadline. A save is tried at least once,
    /// also if its deadline passed while this process was stopped.
    fn begin(&mut self, mut parts: Vec<Part>) -> Option<Vec<Part>> {
        while !parts.is_empty() {
            // `IMMEDIATE` takes the write lock at the start. A transaction that took it later could fail in
            // its middle.
            let begun = self.connection.prepare_cached("BEGIN IMMEDIATE");
            let begun = begun.and_then(|mut begin| begin.execute([])).map_err(Fault::from);
            let now = Instant::now();
            let (fault, failed): (Fault, Vec<Part>) = match begun {
                Ok(_) => return Some(parts),
                Err(fault) if fault.is_busy() => {
                    let closing = self.closing.load(Ordering::Relaxed);
                    let is_over = |part: &mut Part| closing || part.deadline <= now;
                    let mut failed: Vec<Part> = parts.extract_if(.., is_over).collect();
                    let waiting = Vec::from(std::mem::take(&mut self.waiting));
                    for mut part in waiting {
                        if is_over(&mut part) {
                            failed.push(part);
                        } else {
                            self.waiting.push_back(part);
                        }
                    }
                    (fault, failed)
                }
                Err(fault) => (fault, std::mem::take(&mut parts)),
            };
            if !failed.is_empty() {
                let error = fault.into_error(&self.options.path);
                for part in failed {
                    part.work.finish(Err(error.clone()));
                }
            }
            self.accept_ready();
        }
        None
    }

    /// Writes the parts in the open transaction. Records the outcome of each, and returns the changed rows.
    ///
    /// SQLite copies every page that a savepoint changes, and few saves fail. So parts have savepoints only
    /// if `is_careful`; without them, the failure of one part undoes the transaction, and all are tried
    /// again.
    fn transact(
        &mut self,
        parts: &mut [Part],
        outcomes: &mut Vec<Outcome<()>>,
        is_careful: bool,
    ) -> Outcome<Vec<Key>> {
        let db = &self.connection;
        let transaction = Open(db);
        let reading = Reading {
            db,
            decoder: &mut self.decoder,
            cache: Cache::new(&self.memory),
        };
        let mut writing = Writing {
            reading,
            changed: Vec::new(),
            rewrites: Rewrites::default(),
            latest: &self.latest,
            latest_changes: Changes::default(),
            version: data_version(db).ok(),
        };
        let is_single = parts.len() == 1;
        for part in parts.iter_mut() {
            writing.rewrites = std::mem::take(&mut part.rewrites);
            let write = |writing: &mut Writing<'_>| part.work.write(writing);
            let outcome = if is_careful {
                savepoint(&mut writing, write)
            } else {
                attempt(&mut writing, write)
            };
            part.rewrites = std::mem::take(&mut writing.rewrites);
            // Some failures, such as a full disk, make SQLite roll back the whole transaction.
            if db.is_autocommit() {
                let fault = outcome.err();
                return Err(fault.unwrap_or_else(|| Fault::damaged("the transaction ended by itself")));
            }
            match outcome {
                Err(fault) if is_single && !is_careful => return Err(fault),
                Err(_) if !is_careful => {
                    self.careful = CAREFUL;
                    for part in parts {
                        // Another save was stale, so this attempt does not count.
                        part.attempts -= 1;
                    }
                    return Err(Fault::Stale);
                }
                outcome => outcomes.push(outcome),
            }
        }
        let start = Instant::now();
        transaction.commit()?;
        self.last_sync = start.elapsed();
        self.is_log_ahead = true;
        self.file.check(&self.options.path)?;
        let Writing {
            reading,
            changed,
            latest_changes,
            version,
            ..
        } = writing;
        reading.cache.publish();
        self.latest.committed(db, version, latest_changes);
        Ok(changed)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Also after a panic: callers that wait fail when the jobs are dropped.
        self.jobs.close();
        drop(self.jobs.take_ready());
    }
}

/// Runs one part in a savepoint, so that its failure undoes it alone.
fn savepoint<'a, T>(
    writing: &mut Writing<'a>,
    work: impl FnOnce(&mut Writing<'a>) -> Outcome<T>,
) -> Outcome<T> {
    let db = writing.reading.db;
    db.run("SAVEPOINT piece", [])?;
    let outcome = attempt(writing, work);
    if outcome.is_err() {
        if db.is_autocommit() {
            return outcome;
        }
        db.run("ROLLBACK TO piece", [])?;
    }
    db.run("RELEASE piece", [])?;
    outcome
}

/// Runs one part, and discards its notes if it fails. The caller undoes its rows.
fn attempt<'a, T>(
    writing: &mut Writing<'a>,
    work: impl FnOnce(&mut Writing<'a>) -> Outcome<T>,
) -> Outcome<T> {
    let known = (writing.changed.len(), writing.latest_changes.len());
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| work(writing)))
        .unwrap_or_else(|payload| Err(panic_error("a change of a session row", payload.as_ref()).into()))
        .and_then(|done| {
            if writing.rewrites.wanted.is_empty() {
                Ok(done)
            } else {
                Err(Fault::Stale)
            }
        });
    if outcome.is_ok() {
        writing.reading.cache.keep();
    } else {
        writing.reading.cache.forget();
        writing.changed.truncate(known.0);
        writing.latest_changes.undo(known.1);
    }
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
