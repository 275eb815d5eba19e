//! Streams in memory: gone with the process.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Entries, Entry, JsonText, Position, StoredError, StreamEvent, StreamKey, StreamLog, StreamWriter,
    already_exists, not_found, too_large, writer_lost,
};
use crate::{Error, Result};

/// What an event costs besides its text.
const OVERHEAD: usize = 64;

/// Keeps streams in this process's memory. Cloning gives another handle to the same log.
///
/// Time is that of [`tokio::time`], so tests may pause it.
#[derive(Clone)]
pub struct MemoryStreamLog(Arc<Shared>);

/// The settings of a [`MemoryStreamLog`].
#[derive(Debug, Clone)]
#[must_use = "options do nothing until the log is built"]
pub struct MemoryStreamLogOptions {
    keep_for: Duration,
    max_bytes: usize,
    max_stream_bytes: usize,
}

impl MemoryStreamLogOptions {
    /// How long a stream stays after its end; 5 minutes unless set.
    pub fn keep_for(mut self, duration: Duration) -> Self {
        self.keep_for = duration;
        self
    }

    /// About how much memory all streams together may take; 256 MiB unless set.
    ///
    /// Where there is no room the finished streams go first, the oldest before the others. If that does not help, the
    /// stream that wants to grow ends with `RESOURCE_EXHAUSTED`.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// About how much memory one stream may take; 64 MiB unless set. One that wants more ends with `RESOURCE_EXHAUSTED`.
    pub fn max_stream_bytes(mut self, bytes: usize) -> Self {
        self.max_stream_bytes = bytes;
        self
    }

    /// The log.
    pub fn build(self) -> MemoryStreamLog {
        MemoryStreamLog(Arc::new(Shared {
            options: self,
            streams: Mutex::default(),
            swept: Mutex::default(),
            bytes: Arc::default(),
        }))
    }
}

struct Shared {
    options: MemoryStreamLogOptions,
    streams: Mutex<HashMap<StreamKey, Arc<Stream>>>,
    /// When streams that are over for long were last forgotten.
    swept: Mutex<Option<Instant>>,
    /// What all streams that exist take, those that only a reader still holds included.
    bytes: Arc<AtomicUsize>,
}

/// One stream.
struct Stream {
    state: Mutex<State>,
    /// Says that there is something new.
    news: watch::Sender<()>,
    stop: CancellationToken,
    /// The log's total, from which this stream's part goes when it does.
    total: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    chunks: Vec<JsonText>,
    bytes: usize,
    end: Option<End>,
}

struct End {
    event: StreamEvent,
    at: Instant,
}

impl MemoryStreamLog {
    /// A log with the usual settings.
    pub fn new() -> Self {
        Self::options().build()
    }

    /// Settings for a log.
    pub fn options() -> MemoryStreamLogOptions {
        MemoryStreamLogOptions {
            keep_for: Duration::from_mins(5),
            max_bytes: 256 * 1024 * 1024,
            max_stream_bytes: 64 * 1024 * 1024,
        }
    }

    fn find(&self, key: &StreamKey) -> Result<Arc<Stream>> {
        let mut streams = self.0.streams();
        let stream = streams.get(key).ok_or_else(not_found)?;
        if stream.is_over_since(self.0.options.keep_for) {
            streams.remove(key);
            return Err(not_found());
        }
        Ok(Arc::clone(stream))
    }
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, HashMap<StreamKey, Arc<Stream>>> {
        // Every change is a single insertion or removal.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets streams that are over for long. Now and then is enough: nobody is shown one that is.
    fn sweep(&self) {
        let keep_for = self.options.keep_for;
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_some_and(|swept| swept.elapsed() < keep_for / 16) {
            return;
        }
        *swept = Some(Instant::now());
        drop(swept);
        self.streams().retain(|_, stream| !stream.is_over_since(keep_for));
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.load(Ordering::Relaxed).saturating_add(bytes) <= self.options.max_bytes
    }

    /// Makes room for that many bytes at the expense of finished streams.
    fn make_room(&self, bytes: usize) -> Result<()> {
        if self.has_room(bytes) {
            return Ok(());
        }
        let mut streams = self.streams();
        let mut finished: Vec<(Instant, StreamKey)> = streams
            .iter()
            .filter_map(|(key, stream)| Some((stream.ended_at()?, key.clone())))
            .collect();
        finished.sort();
        // More than is needed now, so that a full log does not look through all its streams for every event.
        let plenty = bytes.saturating_add(self.options.max_bytes / 16);
        for (_, key) in finished {
            streams.remove(&key);
            if self.has_room(plenty) {
                break;
            }
        }
        if self.has_room(bytes) {
            return Ok(());
        }
        Err(Error::resource_exhausted(format!(
            "the stream log has no room: streams that are being written fill its {} bytes; allow it more with max_bytes",
            self.options.max_bytes
        ))
        .with_public_message("the stream grew too large to be kept"))
    }
}

impl Stream {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a push or an assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended_at(&self) -> Option<Instant> {
        self.state().end.as_ref().map(|end| end.at)
    }

    fn is_over_since(&self, duration: Duration) -> bool {
        self.ended_at().is_some_and(|at| at.elapsed() >= duration)
    }

    /// Why the stream takes no more events, if it does not.
    fn refusal(state: &State) -> Option<Error> {
        let end = state.end.as_ref()?;
        Some(match &end.event {
            StreamEvent::Failed(error) => error.clone(),
            _ => Error::failed_precondition("the stream has ended already"),
        })
    }

    /// Counts bytes for as long as the stream exists.
    fn charge(&self, state: &mut State, bytes: usize) {
        state.bytes += bytes;
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn end(&self, event: StreamEvent) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some(End {
                event,
                at: Instant::now(),
            });
            drop(state);
            self.news.send_replace(());
        }
    }

    /// The first event after a position, or the end wherever that is; `None` if it has not been written yet.
    fn after(&self, position: Position) -> Option<Entry> {
        let state = self.state();
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
        let bytes = self.state().bytes;
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[async_trait]
impl StreamLog for MemoryStreamLog {
    async fn open(&self, key: &StreamKey) -> Result<Box<dyn StreamWriter>> {
        self.0.sweep();
        let cost = OVERHEAD + key.scope().len() + key.id().len();
        self.0.make_room(cost)?;
        let stream = Arc::new(Stream {
            state: Mutex::default(),
            news: watch::Sender::new(()),
            stop: CancellationToken::new(),
            total: Arc::clone(&self.0.bytes),
        });
        stream.charge(&mut stream.state(), cost);
        let mut streams = self.0.streams();
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
            // The stream holds the sender, and this the stream: it cannot close.
            let _ = self.news.changed().await;
        }
    }
}

struct MemoryWriter {
    log: Arc<Shared>,
    stream: Arc<Stream>,
}

impl MemoryWriter {
    /// Makes room for that many bytes more of this stream.
    fn admit(&self, bytes: usize) -> Result<()> {
        let most = self.log.options.max_stream_bytes;
        if self.stream.state().bytes.saturating_add(bytes) > most {
            return Err(too_large(most));
        }
        self.log.make_room(bytes)
    }
}

#[async_trait]
impl StreamWriter for MemoryWriter {
    async fn append(&self, chunk: JsonText) -> Result<Position> {
        let cost = OVERHEAD + chunk.as_str().len();
        if let Err(error) = self.admit(cost) {
            let ended_before = Stream::refusal(&self.stream.state());
            self.stream
                .end(StreamEvent::Failed(StoredError::from(&error).into()));
            // Readers learn what they may know; the writer's operator, what to do about it.
            return Err(ended_before.unwrap_or(error));
        }
        let mut state = self.stream.state();
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
        if let Some(refusal) = Stream::refusal(&self.stream.state()) {
            return Err(refusal);
        }
        self.stream.end(match outcome {
            Ok(output) => {
                // An end is always kept: it is what lets the stream expire.
                let cost = output.as_str().len();
                self.stream.charge(&mut self.stream.state(), cost);
                StreamEvent::Done(output)
            }
            Err(error) => StreamEvent::Failed(StoredError::from(&error).into()),
        });
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
            .field("streams", &self.0.streams().len())
            .field("bytes", &self.0.bytes.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWriter").finish_non_exhaustive()
    }
}
