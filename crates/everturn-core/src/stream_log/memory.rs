//! A stream log in memory; its streams are lost when the process ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Entries, Entry, JsonText, Position, StoredError, StreamEvent, StreamKey, StreamLog, StreamSubject,
    StreamWriter, already_exists, erased, not_found, too_large, writer_lost,
};
use crate::{Error, Result};

/// The memory counted for each event besides its text, in bytes.
const OVERHEAD: usize = 64;

/// Keeps streams in this process's memory. Cloning gives another handle to the same log.
///
/// It uses the clock of [`tokio::time`], which tests can pause.
#[derive(Clone)]
pub struct MemoryStreamLog(Arc<Shared>);

/// The settings of a [`MemoryStreamLog`].
#[derive(Debug, Clone)]
#[must_use = "options do nothing until the log is built"]
pub struct MemoryStreamLogOptions {
    keep_for: Duration,
    max_bytes: usize,
    max_owner_bytes: usize,
    max_stream_bytes: usize,
}

impl MemoryStreamLogOptions {
    crate::setters! {
        /// Sets how long a stream is kept after its end; 5 minutes by default.
        pub fn keep_for(mut self, duration: Duration) { self.keep_for = duration }

        /// Sets the approximate memory limit of all streams together; 256 MiB by default.
        ///
        /// When the log is full, it removes finished streams, the oldest first. If that does not make enough
        /// room, the stream that needs it ends with `RESOURCE_EXHAUSTED`.
        pub fn max_bytes(mut self, bytes: usize) { self.max_bytes = bytes }

        /// Sets the approximate memory limit of the streams of one [owner](StreamKey::owner) together; 64 MiB
        /// by default.
        ///
        /// An owner at its limit loses its own finished streams, the oldest first, and then its streams end
        /// with `RESOURCE_EXHAUSTED`. So one owner cannot use up the memory of all others.
        pub fn max_owner_bytes(mut self, bytes: usize) { self.max_owner_bytes = bytes }

        /// Sets the approximate memory limit of one stream; 64 MiB by default. A stream that needs more ends
        /// with `RESOURCE_EXHAUSTED`.
        pub fn max_stream_bytes(mut self, bytes: usize) { self.max_stream_bytes = bytes }
    }

    /// Creates the log.
    pub fn build(self) -> MemoryStreamLog {
        MemoryStreamLog(Arc::new(Shared {
            options: self,
            streams: Mutex::default(),
            swept: Mutex::default(),
            bytes: Arc::default(),
            owners: Mutex::default(),
        }))
    }
}

struct Shared {
    options: MemoryStreamLogOptions,
    streams: Mutex<HashMap<StreamKey, Arc<Stream>>>,
    /// The time at which expired streams were last removed.
    swept: Mutex<Option<Instant>>,
    /// The bytes of all streams, including removed ones that a reader still holds.
    bytes: Arc<AtomicUsize>,
    /// The bytes of each owner's streams, counted in the same way.
    owners: Mutex<HashMap<Arc<str>, Arc<AtomicUsize>>>,
}

/// One stream.
struct Stream {
    state: Mutex<State>,
    /// Wakes the readers when an event is added.
    news: watch::Sender<()>,
    stop: CancellationToken,
    /// The owner's and the log's totals of bytes; this stream's bytes are subtracted when it is dropped.
    totals: [Arc<AtomicUsize>; 2],
}

struct State {
    chunks: Vec<JsonText>,
    bytes: usize,
    end: Option<End>,
    /// The subject whose text the stream holds.
    subject: StreamSubject,
}

struct End {
    event: StreamEvent,
    at: Instant,
}

impl MemoryStreamLog {
    /// Creates a log with the default settings.
    pub fn new() -> Self {
        Self::options().build()
    }

    /// Returns the settings of a log, to change before it is built.
    pub fn options() -> MemoryStreamLogOptions {
        MemoryStreamLogOptions {
            keep_for: Duration::from_mins(5),
            max_bytes: 256 * 1024 * 1024,
            max_owner_bytes: 64 * 1024 * 1024,
            max_stream_bytes: 64 * 1024 * 1024,
        }
    }

    fn find(&self, key: &StreamKey) -> Result<Arc<Stream>> {
        let mut streams = self.0.streams.lock();
        let stream = streams.get(key).ok_or_else(not_found)?;
        if stream.is_over_since(self.0.options.keep_for) {
            streams.remove(key);
            return Err(not_found());
        }
        Ok(Arc::clone(stream))
    }
}

impl Shared {
    /// Removes expired streams. Running it rarely is enough, because an expired stream is never returned.
    fn sweep(&self) {
        let keep_for = self.options.keep_for;
        let mut swept = self.swept.lock();
        if swept.is_some_and(|swept| swept.elapsed() < keep_for / 16) {
            return;
        }
        *swept = Some(Instant::now());
        drop(swept);
        self.streams
            .lock()
            .retain(|_, stream| !stream.is_over_since(keep_for));
        // Only the table references the total of an owner without streams.
        self.owners.lock().retain(|_, total| Arc::strong_count(total) > 1);
    }

    /// Returns the total of an owner's bytes.
    fn owner(&self, key: &StreamKey) -> Arc<AtomicUsize> {
        Arc::clone(self.owners.lock().entry(key.owner().into()).or_default())
    }

    /// Frees that many bytes for an owner by removing finished streams: its own if the owner is at its limit,
    /// any if the log is full.
    fn make_room(&self, bytes: usize, owner: &Arc<AtomicUsize>) -> Result<()> {
        let MemoryStreamLogOptions {
            max_bytes,
            max_owner_bytes,
            ..
        } = self.options;
        let is_owners = |stream: &Stream| Arc::ptr_eq(&stream.totals[0], owner);
        if !self.free(bytes, owner, max_owner_bytes, is_owners) {
            return Err(full("max_owner_bytes", "of their owner ", max_owner_bytes));
        }
        if !self.free(bytes, &self.bytes, max_bytes, |_| true) {
            return Err(full("max_bytes", "", max_bytes));
        }
        Ok(())
    }

    /// Removes finished streams, the oldest first, until a total has room for that many more bytes; returns
    /// whether it has.
    fn free(&self, bytes: usize, total: &AtomicUsize, most: usize, may_go: impl Fn(&Stream) -> bool) -> bool {
        let has_room = |bytes: usize| total.load(Ordering::Relaxed).saturating_add(bytes) <= most;
        if has_room(bytes) {
            return true;
        }
        let mut streams = self.streams.lock();
        let mut finished: Vec<(Instant, StreamKey)> = streams
            .iter()
            .filter(|(_, stream)| may_go(stream))
            .filter_map(|(key, stream)| Some((stream.ended_at()?, key.clone())))
            .collect();
        finished.sort();
        // Frees more than is needed now, so that a full log does not search all its streams for every event.
        let plenty = bytes.saturating_add(most / 16);
        for (_, key) in finished {
            streams.remove(&key);
            if has_room(plenty) {
                break;
            }
        }
        has_room(bytes)
    }
}

/// Creates the error of a stream for which a limit leaves no room.
fn full(limit: &str, whose: &str, most: usize) -> Error {
    Error::resource_exhausted(format!(
        "the stream log has no room: streams {whose}that are being written fill {most} bytes; allow more with {limit}"
    ))
    .with_public_message("the stream grew too large to be kept")
}

impl Stream {
    fn ended_at(&self) -> Option<Instant> {
        self.state.lock().end.as_ref().map(|end| end.at)
    }

    fn is_over_since(&self, duration: Duration) -> bool {
        self.ended_at().is_some_and(|at| at.elapsed() >= duration)
    }

    /// Returns the error for adding an event to a stream that has ended, or `None` if it has not.
    fn refusal(state: &State) -> Option<Error> {
        let end = state.end.as_ref()?;
        Some(match &end.event {
            StreamEvent::Failed(error) => error.clone(),
            _ => Error::failed_precondition("the stream has ended already"),
        })
    }

    /// Adds bytes to the stream's, its owner's and the log's totals until the stream is dropped.
    fn charge(&self, state: &mut State, bytes: usize) {
        state.bytes += bytes;
        for total in &self.totals {
            total.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn end(&self, event: StreamEvent) {
        let mut state = self.state.lock();
        if state.end.is_none() {
            state.end = Some(End {
                event,
                at: Instant::now(),
            });
            drop(state);
            self.news.send_replace(());
        }
    }

    /// Drops the text of the stream, also for readers that still hold it, and ends the stream.
    fn erase(&self) {
        let mut state = self.state.lock();
        state.chunks = Vec::new();
        state.end = Some(End {
            event: StreamEvent::Failed(erased()),
            at: Instant::now(),
        });
        drop(state);
        self.news.send_replace(());
    }

    /// Returns the first event after a position. If the stream ended at or before the position, returns the
    /// end; if the event has not been written yet, `None`.
    fn after(&self, position: Position) -> Option<Entry> {
        let state = self.state.lock();
        let index = usize::try_from(position.number()).unwrap_or(usize::MAX);
        if let Some(chunk) = state.chunks.get(index) {
            return Some(Entry {
                position: position.next(),
                event: StreamEvent::Chunk(chunk.clone()),
            });
        }
        let end = state.end.as_ref()?;
        Some(Entry {
            position: Position::new(state.chunks.len() as u64).next(),
            event: end.event.clone(),
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let bytes = self.state.lock().bytes;
        for total in &self.totals {
            total.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl StreamLog for MemoryStreamLog {
    async fn open(&self, key: &StreamKey) -> Result<Box<dyn StreamWriter>> {
        self.0.sweep();
        let cost = OVERHEAD + key.scope().len() + key.id().len();
        let owner = self.0.owner(key);
        self.0.make_room(cost, &owner)?;
        let stream = Arc::new(Stream {
            state: Mutex::new(State {
                chunks: Vec::new(),
                bytes: 0,
                end: None,
                subject: key.subject().clone(),
            }),
            news: watch::Sender::new(()),
            stop: CancellationToken::new(),
            totals: [owner, Arc::clone(&self.0.bytes)],
        });
        stream.charge(&mut stream.state.lock(), cost);
        let mut streams = self.0.streams.lock();
        let keep_for = self.0.options.keep_for;
        if streams
            .get(key)
            .is_some_and(|stream| !stream.is_over_since(keep_for))
        {
            return Err(already_exists(key));
        }
        streams.insert(key.clone(), Arc::clone(&stream));
        drop(streams);
        Ok(Box::new(MemoryWriter {
            log: Arc::clone(&self.0),
            stream,
        }))
    }

    async fn read(&self, key: &StreamKey, after: Position) -> Result<Entries> {
        let stream = self.find(key)?;
        let reader = Reader {
            news: stream.news.subscribe(),
            stream,
            seen: after,
            over: false,
        };
        Ok(futures::stream::unfold(reader, Reader::next).boxed())
    }

    async fn stop(&self, key: &StreamKey) -> Result<()> {
        self.find(key)?.stop.cancel();
        Ok(())
    }

    async fn erase(&self, subject: &StreamSubject) -> Result<u64> {
        let mut erased = Vec::new();
        self.0.streams.lock().retain(|_, stream| {
            let is_kept = !subject.covers(&stream.state.lock().subject);
            if !is_kept {
                erased.push(Arc::clone(stream));
            }
            is_kept
        });
        for stream in &erased {
            stream.erase();
        }
        Ok(erased.len() as u64)
    }
}

struct Reader {
    stream: Arc<Stream>,
    news: watch::Receiver<()>,
    seen: Position,
    over: bool,
}

impl Reader {
    async fn next(mut self) -> Option<(Result<Entry>, Self)> {
        if self.over {
            return None;
        }
        loop {
            if let Some(entry) = self.stream.after(self.seen) {
                self.seen = entry.position;
                self.over = entry.event.is_end();
                return Some((Ok(entry), self));
            }
            // Cannot fail: this reader holds the stream, and the stream holds the sender.
            let _ = self.news.changed().await;
        }
    }
}

struct MemoryWriter {
    log: Arc<Shared>,
    stream: Arc<Stream>,
}

impl MemoryWriter {
    /// Reserves room for that many more bytes of this stream.
    fn admit(&self, bytes: usize) -> Result<()> {
        let most = self.log.options.max_stream_bytes;
        if self.stream.state.lock().bytes.saturating_add(bytes) > most {
            return Err(too_large(most));
        }
        self.log.make_room(bytes, &self.stream.totals[0])
    }
}

#[async_trait]
impl StreamWriter for MemoryWriter {
    async fn append(&self, chunk: JsonText) -> Result<Position> {
        let cost = OVERHEAD + chunk.as_str().len();
        if let Err(error) = self.admit(cost) {
            let ended_before = Stream::refusal(&self.stream.state.lock());
            self.stream
                .end(StreamEvent::Failed(StoredError::from(&error).into()));
            // Readers received the stored form, perhaps without private text; the writer's operator needs the
            // complete error.
            return Err(ended_before.unwrap_or(error));
        }
        let mut state = self.stream.state.lock();
        if let Some(refusal) = Stream::refusal(&state) {
            return Err(refusal);
        }
        state.chunks.push(chunk);
        self.stream.charge(&mut state, cost);
        let position = Position::new(state.chunks.len() as u64);
        drop(state);
        self.stream.news.send_replace(());
        Ok(position)
    }

    async fn finish(self: Box<Self>, outcome: Result<JsonText>) -> Result<()> {
        if let Some(refusal) = Stream::refusal(&self.stream.state.lock()) {
            return Err(refusal);
        }
        self.stream.end(match outcome {
            Ok(output) => {
                // The end is stored even if there is no room, because a stream without an end would never
                // expire.
                let cost = output.as_str().len();
                self.stream.charge(&mut self.stream.state.lock(), cost);
                StreamEvent::Done(output)
            }
            Err(error) => StreamEvent::Failed(StoredError::from(&error).into()),
        });
        Ok(())
    }

    async fn about(&self, subject: &StreamSubject) -> Result<()> {
        let mut state = self.stream.state.lock();
        if let Some(refusal) = Stream::refusal(&state) {
            return Err(refusal);
        }
        state.subject = subject.clone();
        Ok(())
    }

    fn stop_requested(&self) -> CancellationToken {
        self.stream.stop.clone()
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        self.stream.end(StreamEvent::Failed(writer_lost()));
    }
}

impl Default for MemoryStreamLog {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStreamLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStreamLog")
            .field("streams", &self.0.streams.lock().len())
            .field("bytes", &self.0.bytes.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

crate::opaque_debug!(MemoryWriter);
