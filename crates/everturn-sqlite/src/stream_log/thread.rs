//! The thread that writes streams.
//!
//! Chunks are written together with others, of any stream, in one transaction, whose cost does not depend on
//! the number of streams. After such a transaction the next one waits a moment for more of them. Opening,
//! finishing and stopping do not wait, and take the waiting chunks along. Between transactions the thread
//! renews the lease of this process and polls for changes made by others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use everturn_core::stream_log::{
    self, JsonText, Position, StoredError, StreamEvent, StreamKey, StreamSubject, already_exists, writer_lost,
};
use everturn_core::{Error, Result};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::SqliteStreamLog;
use super::live::Live;
use super::rows::{self, End, make_room, opening_cost};
use super::shared::Shared;
use super::stream_writer::SqliteStreamWriter;
use crate::connection::{Thoroughness, data_version, deadline_after, empty_log, retry, scrub};
use crate::fault::{Fault, Outcome};

/// The greatest number of requests in a transaction.
const MAX_GROUP: usize = 1024;

/// How long after its expiry a stream is removed.
const SWEEP_LATE: Duration = Duration::from_millis(500);

/// The longest time between two sweeps while there are streams: the clock may be set forward.
const SWEEP_WITHIN: Duration = Duration::from_mins(1);

/// The time after which a sweep that failed is tried again.
const SWEEP_AGAIN: Duration = Duration::from_secs(5);

/// A request to the thread.
pub(super) enum Job {
    Open {
        key: StreamKey,
        log: SqliteStreamLog,
        reply: oneshot::Sender<Result<SqliteStreamWriter>>,
    },
    /// There are chunks to write, which may wait for others.
    Write(Arc<Live>),
    Finish {
        live: Arc<Live>,
        end: End,
        reply: Option<oneshot::Sender<Result<()>>>,
    },
    Stop {
        key: StreamKey,
        reply: oneshot::Sender<Result<bool>>,
    },
    /// It is now known whose text a stream holds.
    About {
        live: Arc<Live>,
        subject: StreamSubject,
        reply: oneshot::Sender<Result<()>>,
    },
    Erase {
        subject: StreamSubject,
        reply: oneshot::Sender<Result<u64>>,
    },
    /// A reader of another process's stream has arrived.
    Poll,
}

type Opening = (
    StreamKey,
    SqliteStreamLog,
    oneshot::Sender<Result<SqliteStreamWriter>>,
);
type Stopping = (StreamKey, oneshot::Sender<Result<bool>>);
type Noting = (Arc<Live>, StreamSubject, oneshot::Sender<Result<()>>);
type Erasing = (StreamSubject, oneshot::Sender<Result<u64>>);

/// The requests of one transaction.
#[derive(Default)]
struct Group {
    opens: Vec<Opening>,
    writes: Vec<Write>,
    stops: Vec<Stopping>,
    notes: Vec<Noting>,
    erasures: Vec<Erasing>,
}

/// The chunks of a stream since the last transaction.
struct Write {
    live: Arc<Live>,
    first: Position,
    chunks: Vec<JsonText>,
    end: Option<End>,
    reply: Option<oneshot::Sender<Result<()>>>,
}

/// The results of a transaction, in the order of its requests.
struct Done {
    writer: Option<i64>,
    opened: Vec<Result<i64>>,
    written: Vec<Fate>,
    stopped: Vec<bool>,
    noted: Vec<bool>,
    erased: Vec<Vec<i64>>,
}

/// The outcome of a write.
enum Fate {
    Written,
    /// Another process has ended the stream.
    Lost,
    /// There was no room, and the stream has ended with this error.
    Full(Error),
}

pub(super) struct Thread {
    db: Connection,
    shared: Arc<Shared>,
    /// The key of this process as a writer.
    writer: Option<i64>,
    open: HashMap<i64, (StreamKey, Arc<Live>)>,
    /// Streams with chunks to write.
    unwritten: Vec<Arc<Live>>,
    flush_at: Option<Instant>,
    /// When chunks were last written.
    flushed_at: Option<Instant>,
    poll_at: Instant,
    renew_at: Instant,
    /// When expired streams are removed next, if there are streams that will expire.
    sweep_at: Option<Instant>,
    version: i64,
    /// Streams that ended because they could not be written, and whose end is yet to be written.
    broken: Vec<(i64, End)>,
}

impl Thread {
    pub(super) fn new(db: Connection, shared: Arc<Shared>) -> Outcome<Self> {
        let now = Instant::now();
        Ok(Self {
            version: data_version(&db)?,
            db,
            shared,
            writer: None,
            open: HashMap::new(),
            unwritten: Vec::new(),
            flush_at: None,
            flushed_at: None,
            poll_at: now,
            renew_at: now,
            // Streams may have expired while no process had the file open.
            sweep_at: Some(now),
            broken: Vec::new(),
        })
    }

    /// Works until the last handle, writer and reader are dropped, and then writes the rest.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        loop {
            let first = match self.patience() {
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(patience) => queue.recv_timeout(patience),
            };
            let is_over = matches!(first, Err(RecvTimeoutError::Disconnected));
            let jobs = first
                .into_iter()
                .chain(queue.try_iter())
                // A bound, so that the first caller of a burst does not wait for the last.
                .take(MAX_GROUP)
                .collect();
            let group = self.sort(jobs);
            let is_due = self.flush_at.is_some_and(|at| at <= Instant::now());
            // Chunks alone wait for the flush interval, because many then share one row.
            if is_over || is_due || !group.is_empty() {
                self.commit(group);
            }
            if is_over {
                self.leave();
                // Another process that is using the database may be in the way; then its last connection
                // empties the log.
                let _ = empty_log(&self.db);
                return;
            }
            self.tend();
        }
    }

    /// Returns how long the thread may sleep without a request.
    fn patience(&self) -> Option<Duration> {
        let renew_at = self.is_obliged().then_some(self.renew_at);
        let poll_at = self.is_watching().then_some(self.poll_at);
        let next = [self.flush_at, renew_at, poll_at, self.sweep_at]
            .into_iter()
            .flatten()
            .min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Returns whether other processes must end streams if this one dies.
    fn is_obliged(&self) -> bool {
        !self.open.is_empty() || !self.broken.is_empty()
    }

    fn is_watching(&self) -> bool {
        !self.open.is_empty() || self.shared.has_strangers()
    }

    /// Sets aside requests that can wait, and collects the others.
    fn sort(&mut self, jobs: Vec<Job>) -> Group {
        let mut group = Group::default();
        for job in jobs {
            match job {
                Job::Open { key, log, reply } => group.opens.push((key, log, reply)),
                Job::Stop { key, reply } => group.stops.push((key, reply)),
                Job::Write(live) => {
                    self.unwritten.push(live);
                    // The first chunk after a pause does not wait: readers wait for it.
                    let again_at = self.flushed_at.map(|at| at + self.shared.options.flush);
                    self.flush_at
                        .get_or_insert_with(|| again_at.unwrap_or_else(Instant::now));
                }
                Job::Finish { live, end, reply } => {
                    // Another process may have taken this one for dead and ended its streams.
                    if self.open.contains_key(&live.row) {
                        group.writes.push(Write::of(live, Some(end), reply));
                    } else if let Some(reply) = reply {
                        // The caller may have stopped waiting.
                        let _ = reply.send(Err(live.refusal().unwrap_or_else(writer_lost)));
                    }
                }
                Job::About { live, subject, reply } => group.notes.push((live, subject, reply)),
                Job::Erase { subject, reply } => group.erasures.push((subject, reply)),
                Job::Poll => {}
            }
        }
        group
    }

    /// Runs all requests in one transaction and answers them.
    fn commit(&mut self, mut group: Group) {
        self.flush_at = None;
        for live in std::mem::take(&mut self.unwritten) {
            let is_finishing = group.writes.iter().any(|write| write.live.row == live.row);
            if self.open.contains_key(&live.row) && !is_finishing {
                group.writes.push(Write::of(live, None, None));
            }
        }
        if group.writes.iter().any(|write| !write.chunks.is_empty()) {
            self.flushed_at = Some(Instant::now());
        }
        match self.transact(&group) {
            Ok(done) => self.complete(group, done),
            Err(fault) => {
                let error = fault.into_error(&self.shared.options.path);
                self.give_up(group, &error);
            }
        }
        let polled = self.poll_watched();
        self.report(
            polled,
            "cannot look for what this process did to streams of others",
        );
    }

    /// Wakes the readers of other processes' streams that have changed.
    fn poll_watched(&self) -> Outcome<()> {
        for stream in self.shared.watched_streams() {
            self.shared.polled(stream, rows::progress(&self.db, stream)?);
        }
        Ok(())
    }

    fn transact(&mut self, group: &Group) -> Outcome<Done> {
        let options = &self.shared.options;
        let (now, expires_at) = (options.now(), options.in_future(options.keep_for));
        let db = begin(&self.db, options.busy_timeout)?;
        // Ends that could not be written before are the first to be tried again.
        for (stream, end) in &self.broken {
            rows::end(&db, *stream, end, expires_at)?;
        }
        let mut done = Done {
            writer: self.writer,
            opened: Vec::new(),
            written: Vec::new(),
            stopped: Vec::new(),
            noted: Vec::new(),
            erased: Vec::new(),
        };
        for write in &group.writes {
            done.written.push(self.write(&db, write, expires_at)?);
        }
        if !group.opens.is_empty() {
            let lease_until = options.in_future(options.lease);
            let writer = match self.writer {
                Some(writer) if rows::renew(&db, writer, lease_until)? => writer,
                _ => rows::enlist(&db, lease_until)?,
            };
            // Streams of dead processes are ended here too, so that their keys can be opened again.
            rows::bury(&db, Some(writer), now, expires_at)?;
            for (key, ..) in &group.opens {
                rows::sweep(&db, key, now)?;
                let opened = match make_room(&db, options, key.owner(), opening_cost(key))? {
                    Some(full) => Err(full),
                    None => rows::open(&db, key, writer)?.ok_or_else(|| already_exists(key)),
                };
                done.opened.push(opened);
            }
            done.writer = Some(writer);
        }
        for (key, _) in &group.stops {
            done.stopped.push(rows::stop(&db, key, now)?);
        }
        for (live, subject, _) in &group.notes {
            done.noted.push(rows::note(&db, live.row, subject)?);
        }
        // After everything else: what was written in this transaction is erased too.
        for (subject, _) in &group.erasures {
            done.erased.push(rows::erase(&db, subject)?);
        }
        db.commit()?;
        Ok(done)
    }

    /// Writes the chunks and the end of one stream, if there is room. An end alone always has room: a stream
    /// without one would never expire.
    fn write(&self, db: &Connection, write: &Write, expires_at: i64) -> Outcome<Fate> {
        let (row, options) = (write.live.row, &self.shared.options);
        if !write.chunks.is_empty()
            && let Some((key, _)) = self.open.get(&row)
            && let Some(full) = make_room(db, options, key.owner(), rows::cost(&write.chunks))?
        {
            let end = End::Failed(StoredError::from(&full));
            let is_ours = rows::end(db, row, &end, expires_at)?;
            return Ok(if is_ours { Fate::Full(full) } else { Fate::Lost });
        }
        let mut is_ours = rows::append(db, row, write.first, &write.chunks)?;
        if let (true, Some(end)) = (is_ours, &write.end) {
            is_ours = rows::end(db, row, end, expires_at)?;
        }
        Ok(if is_ours { Fate::Written } else { Fate::Lost })
    }

    fn complete(&mut self, group: Group, done: Done) {
        self.writer = done.writer;
        if group.writes.iter().any(|write| write.end.is_some()) {
            // A stream that ended now expires later.
            let keep_for = self.shared.options.keep_for.min(SWEEP_WITHIN);
            self.sweep_at
                .get_or_insert_with(|| Instant::now() + keep_for + SWEEP_LATE);
        }
        self.broken.clear();
        for (write, fate) in group.writes.into_iter().zip(done.written) {
            let outcome = match fate {
                Fate::Written => {
                    write.live.written(write.chunks.len());
                    if let Some(end) = &write.end {
                        self.close(&write.live, end.event());
                    }
                    Ok(())
                }
                Fate::Lost => {
                    write.live.written(write.chunks.len());
                    self.close(&write.live, StreamEvent::Failed(writer_lost()));
                    Err(writer_lost())
                }
                // Readers in this process still get the chunks from memory.
                Fate::Full(error) => {
                    let queued = StoredError::from(&error).into();
                    self.close(&write.live, StreamEvent::Failed(queued));
                    Err(error)
                }
            };
            write.reply.map(|reply| reply.send(outcome));
        }
        for ((key, log, reply), row) in group.opens.into_iter().zip(done.opened) {
            let opened = row.map(|row| {
                let live = Arc::new(Live::new(row, self.shared.options.max_stream_bytes));
                self.shared.live.lock().insert(key.clone(), Arc::clone(&live));
                if self.open.is_empty() {
                    self.renew_at = Instant::now() + self.shared.options.lease / 3;
                }
                self.open.insert(row, (key, Arc::clone(&live)));
                SqliteStreamWriter::new(live, log)
            });
            // A writer that the caller no longer takes ends its stream when it is dropped.
            let _ = reply.send(opened);
        }
        for ((_, reply), found) in group.stops.into_iter().zip(done.stopped) {
            let _ = reply.send(Ok(found));
        }
        for ((live, _, reply), is_noted) in group.notes.into_iter().zip(done.noted) {
            let refusal = || live.refusal().unwrap_or_else(writer_lost);
            let _ = reply.send(if is_noted { Ok(()) } else { Err(refusal()) });
        }
        self.complete_erasures(group.erasures, done.erased);
    }

    /// Ends the streams that were erased, and wipes their text out of the write-ahead log.
    fn complete_erasures(&mut self, erasures: Vec<Erasing>, erased: Vec<Vec<i64>>) {
        if erasures.is_empty() {
            return;
        }
        for row in erased.iter().flatten() {
            if let Some((key, live)) = self.open.remove(row) {
                live.forget();
                self.shared
                    .end(&key, &live, StreamEvent::Failed(stream_log::erased()));
            }
        }
        // Also if nothing was found: an earlier erasure may have been unable to.
        let is_tenant = erasures.iter().any(|(subject, _)| subject.session_id().is_none());
        let thoroughness = if is_tenant {
            Thoroughness::Full
        } else {
            Thoroughness::Usual
        };
        let options = &self.shared.options;
        let wiped = scrub(&self.db, deadline_after(options.busy_timeout), thoroughness)
            .map_err(|fault| fault.into_error(&options.path));
        for ((_, reply), rows) in erasures.into_iter().zip(erased) {
            let _ = reply.send(wiped.clone().map(|()| rows.len() as u64));
        }
    }

    /// Answers all requests of a failed transaction with its error. A stream that lost chunks ends.
    fn give_up(&mut self, group: Group, error: &Error) {
        for write in group.writes {
            let end = End::Failed(StoredError::from(error));
            self.close(&write.live, end.event());
            self.broken.push((write.live.row, end));
            write.reply.map(|reply| reply.send(Err(error.clone())));
        }
        for (_, _, reply) in group.opens {
            let _ = reply.send(Err(error.clone()));
        }
        for (_, reply) in group.stops {
            let _ = reply.send(Err(error.clone()));
        }
        for (.., reply) in group.notes {
            let _ = reply.send(Err(error.clone()));
        }
        for (_, reply) in group.erasures {
            let _ = reply.send(Err(error.clone()));
        }
    }

    /// Ceases to write a stream.
    fn close(&mut self, live: &Live, event: StreamEvent) {
        match self.open.remove(&live.row) {
            Some((key, _)) => self.shared.end(&key, live, event),
            None => live.end(event),
        }
    }

    /// Does the periodic work.
    fn tend(&mut self) {
        let now = Instant::now();
        if self.is_obliged() && self.renew_at <= now {
            self.renew_at = now + self.shared.options.lease / 3;
            let renewed = self.renew();
            self.report(renewed, "cannot show that this process is alive");
        }
        if self.is_watching() && self.poll_at <= now {
            self.poll_at = now + self.shared.options.poll;
            let polled = self.poll();
            self.report(polled, "cannot read the changes of other processes to streams");
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            let swept = self.sweep();
            self.report(swept, "cannot remove expired streams");
        }
    }

    /// Removes expired streams and, once none is left that has expired, their text from the write-ahead log.
    fn sweep(&mut self) -> Outcome<()> {
        // If it fails, it is tried again.
        self.sweep_at = Some(Instant::now() + SWEEP_AGAIN);
        let options = &self.shared.options;
        let now = options.now();
        let mut next = rows::next_expiry(&self.db)?;
        let mut removed = 0;
        // Others wait for the lock, so it is taken only if there is something to remove.
        if next.is_some_and(|next| next <= now) {
            let db = begin(&self.db, options.busy_timeout)?;
            removed = rows::remove_expired(&db, now)?;
            next = rows::next_expiry(&db)?;
            db.commit()?;
        }
        let wait = |next: i64| Duration::from_millis(u64::try_from(next - now).unwrap_or_default());
        if removed > 0 && next.is_none_or(|next| next > now) {
            // Another process that reads at this moment is in the way; the next sweep tries again.
            let _ = empty_log(&self.db);
        }
        // A moment later than the expiry, so that streams which expire one after the other are removed
        // together.
        self.sweep_at =
            next.map(|next| Instant::now() + wait(next).clamp(Duration::ZERO, SWEEP_WITHIN) + SWEEP_LATE);
        self.poll_watched()
    }

    fn report(&self, outcome: Outcome<()>, what: &str) {
        if let Err(fault) = outcome {
            let error = fault.into_error(&self.shared.options.path);
            tracing::warn!(%error, "{what}");
        }
    }

    fn renew(&mut self) -> Outcome<()> {
        let options = &self.shared.options;
        let lease_until = options.in_future(options.lease);
        let Some(writer) = self.writer else { return Ok(()) };
        let db = &self.db;
        let is_alive = retry(options.busy_timeout, || rows::renew(db, writer, lease_until))?;
        if !is_alive {
            self.writer = None;
            for (_, (key, live)) in self.open.drain() {
                self.shared.end(&key, &live, StreamEvent::Failed(writer_lost()));
            }
        }
        if !self.broken.is_empty() {
            self.commit(Group::default());
        }
        Ok(())
    }

    fn poll(&mut self) -> Outcome<()> {
        let options = &self.shared.options;
        let version = data_version(&self.db)?;
        // The version changes with every commit of another connection, and is cheap to read.
        if version != self.version {
            self.version = version;
            let stopped = self.writer.map(|writer| rows::stopped(&self.db, writer));
            for stream in stopped.transpose()?.unwrap_or_default() {
                if let Some((_, live)) = self.open.get(&stream) {
                    live.stop.cancel();
                }
            }
            self.poll_watched()?;
        }
        let now = options.now();
        if rows::has_dead(&self.db, self.writer, now)? {
            let db = begin(&self.db, options.busy_timeout)?;
            rows::bury(&db, self.writer, now, options.in_future(options.keep_for))?;
            db.commit()?;
            self.poll_watched()?;
        }
        Ok(())
    }

    /// Ends the streams that are still open, and unregisters this process as a writer.
    fn leave(&mut self) {
        if !self.open.is_empty() {
            let lost = self.open.keys().map(|row| (*row, End::Lost));
            self.broken.extend(lost);
            self.commit(Group::default());
        }
        if let Some(writer) = self.writer {
            // If it fails, the lease lapses.
            let _ = rows::dismiss(&self.db, writer);
        }
    }
}

impl Write {
    fn of(live: Arc<Live>, end: Option<End>, reply: Option<oneshot::Sender<Result<()>>>) -> Self {
        let (first, chunks) = live.unwritten();
        Self {
            live,
            first,
            chunks,
            end,
            reply,
        }
    }
}

impl Group {
    fn is_empty(&self) -> bool {
        self.opens.is_empty()
            && self.writes.is_empty()
            && self.stops.is_empty()
            && self.notes.is_empty()
            && self.erasures.is_empty()
    }
}

/// Releases everyone who waits for the thread, however it ends.
impl Drop for Thread {
    fn drop(&mut self) {
        for (key, live) in self.open.values() {
            self.shared.end(key, live, StreamEvent::Failed(writer_lost()));
        }
        self.shared.over();
    }
}

fn begin(db: &Connection, patience: Duration) -> Outcome<Transaction<'_>> {
    retry(patience, || {
        Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(Fault::from)
    })
}
