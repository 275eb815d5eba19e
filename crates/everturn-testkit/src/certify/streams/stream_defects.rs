//! Stream logs that each break one promise, to show that the kit detects them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::stream_log::{
    Entries, Entry, JsonText, MemoryStreamLog, Position, StreamEvent, StreamKey, StreamLog, StreamSubject,
    StreamWriter, already_exists, not_found,
};
use everturn_core::{Error, Result, Status};
use futures::{FutureExt, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The defect of a [`DefectiveLog`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamDefect {
    /// Reads the existing events before it subscribes, and so misses events written in between.
    GapAfterReplay,
    /// Subscribes from before the last event that it has read, and so repeats it.
    DuplicateAfterReplay,
    /// Returns existing events in the wrong order.
    OutOfOrder,
    /// Counts positions from zero.
    PositionsFromZero,
    /// Lets a reader with a position past the end wait for ever.
    LostEnd,
    /// Parses and serialises chunks.
    RewrittenText,
    /// Lets all readers of a stream share one position.
    SharedPlace,
    /// Lets a writer wait for the slowest reader.
    WaitsForReaders,
    /// Does not notice that a writer was dropped.
    SilentLoss,
    /// Mixes the streams of all scopes.
    SharedScopes,
    /// Joins scope and id with a slash.
    JoinedKeys,
    /// Distinguishes a stream of another scope from a missing one.
    ToldApart,
    /// Lets a key be opened again while its stream exists.
    ReusedKeys,
    /// Reads an unknown stream as an empty one.
    UnknownIsEmpty,
    /// Never expires a stream.
    Eternal,
    /// Expires streams that are being written.
    ExpiringWriters,
    /// Never frees the key of a stream.
    TakenForGood,
    /// Sends every reader the private text of an error.
    PublishedErrors,
    /// Does not pass a request to stop on to the writer.
    DeafToStops,
    /// Ends a stream on a request to stop its writer.
    StopThatEnds,
    /// Keeps streams of any size.
    Unbounded,
    /// Drops events beyond the limit and continues after them.
    GapAtTheBound,
    /// Reports that streams were erased without erasing them.
    IdleErasure,
}

impl StreamDefect {
    /// Every defect.
    pub const ALL: [Self; 23] = [
        Self::GapAfterReplay,
        Self::DuplicateAfterReplay,
        Self::OutOfOrder,
        Self::PositionsFromZero,
        Self::LostEnd,
        Self::RewrittenText,
        Self::SharedPlace,
        Self::WaitsForReaders,
        Self::SilentLoss,
        Self::SharedScopes,
        Self::JoinedKeys,
        Self::ToldApart,
        Self::ReusedKeys,
        Self::UnknownIsEmpty,
        Self::Eternal,
        Self::ExpiringWriters,
        Self::TakenForGood,
        Self::PublishedErrors,
        Self::DeafToStops,
        Self::StopThatEnds,
        Self::Unbounded,
        Self::GapAtTheBound,
        Self::IdleErasure,
    ];
}

/// An in-memory log with a defect. It uses the time of [`tokio::time`].
#[derive(Debug, Clone)]
pub struct DefectiveLog {
    log: MemoryStreamLog,
    defect: StreamDefect,
    keep_for: Duration,
    max_stream_bytes: usize,
    streams: Arc<Mutex<Streams>>,
}

#[derive(Default)]
struct Streams {
    /// How often each key was opened.
    opened: HashMap<StreamKey, u64>,
    since: HashMap<StreamKey, Instant>,
    /// The position of each reader.
    readers: HashMap<StreamKey, Vec<Weak<AtomicU64>>>,
    /// The one position that all readers of a stream share.
    places: HashMap<StreamKey, Arc<tokio::sync::Mutex<Entries>>>,
    written: HashMap<StreamKey, Arc<AtomicU64>>,
    ended: HashSet<StreamKey>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams")
            .field("opened", &self.opened)
            .finish_non_exhaustive()
    }
}

impl DefectiveLog {
    /// Creates a log with this retention period and size limit, and with its defect.
    pub fn new(defect: StreamDefect, keep_for: Duration, max_stream_bytes: usize) -> Self {
        let most = match defect {
            StreamDefect::Unbounded | StreamDefect::GapAtTheBound => usize::MAX,
            _ => max_stream_bytes,
        };
        let time = match defect {
            StreamDefect::Eternal => Duration::from_hours(1000),
            _ => keep_for,
        };
        Self {
            log: MemoryStreamLog::options()
                .keep_for(time)
                .max_stream_bytes(most)
                .build(),
            defect,
            keep_for,
            max_stream_bytes,
            streams: Arc::default(),
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock()
    }

    /// Returns the key as changed by the defect.
    fn key(&self, key: &StreamKey) -> StreamKey {
        match self.defect {
            StreamDefect::SharedScopes => StreamKey::new("everybody", key.id()),
            StreamDefect::JoinedKeys => StreamKey::new("", format!("{}/{}", key.scope(), key.id())),
            StreamDefect::ReusedKeys => {
                let times = self.streams().opened.get(key).copied().unwrap_or_default();
                StreamKey::new(key.scope(), format!("{}#{times}", key.id()))
            }
            _ => key.clone(),
        }
    }

    /// Returns the error for an unknown stream.
    fn unknown(&self, key: &StreamKey, error: Error) -> Error {
        let is_foreign = self.streams().opened.keys().any(|other| other.id() == key.id());
        if self.defect == StreamDefect::ToldApart && error.status() == Status::NotFound && is_foreign {
            return Error::permission_denied("this stream belongs to another caller");
        }
        error
    }

    /// Returns the entries as changed by the defect.
    async fn entries(&self, key: &StreamKey, after: Position) -> Result<Entries> {
        let entries = self.log.read(key, after).await?;
        Ok(match self.defect {
            StreamDefect::GapAfterReplay | StreamDefect::DuplicateAfterReplay => {
                self.replayed(key.clone(), after, entries)
            }
            StreamDefect::OutOfOrder => entries
                .ready_chunks(2)
                .flat_map(|pair| futures::stream::iter(swapped(pair)))
                .boxed(),
            StreamDefect::PositionsFromZero => entries.map(|entry| entry.map(counted_from_zero)).boxed(),
            StreamDefect::LostEnd => entries
                .filter(move |entry| {
                    let is_seen = matches!(entry, Ok(entry) if entry.position <= after);
                    std::future::ready(!is_seen)
                })
                .chain(futures::stream::once(std::future::pending()))
                .boxed(),
            StreamDefect::SharedPlace => self.shared(key, entries),
            StreamDefect::WaitsForReaders => self.counted(key, after, entries),
            _ => entries,
        })
    }

    /// Returns the existing entries and, a little later, the newer ones.
    fn replayed(&self, key: StreamKey, after: Position, mut entries: Entries) -> Entries {
        let mut there = Vec::new();
        while let Some(Some(entry)) = entries.next().now_or_never() {
            there.push(entry);
        }
        if matches!(there.last(), Some(Ok(entry)) if entry.event.is_end()) {
            return futures::stream::iter(there).boxed();
        }
        let (this, seen) = (self.clone(), after.number() + there.len() as u64);
        let live = async move {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            let written = this.written(&key).load(Ordering::SeqCst);
            let from = if this.defect == StreamDefect::GapAfterReplay {
                written.max(seen)
            } else {
                seen.saturating_sub(1)
            };
            match this.log.read(&key, Position::new(from)).await {
                Ok(entries) => entries,
                Err(error) => futures::stream::iter([Err(error)]).boxed(),
            }
        };
        futures::stream::iter(there).chain(live.flatten_stream()).boxed()
    }

    fn written(&self, key: &StreamKey) -> Arc<AtomicU64> {
        Arc::clone(self.streams().written.entry(key.clone()).or_default())
    }

    fn shared(&self, key: &StreamKey, entries: Entries) -> Entries {
        let place = || Arc::new(tokio::sync::Mutex::new(entries));
        let place = Arc::clone(self.streams().places.entry(key.clone()).or_insert_with(place));
        futures::stream::unfold(place, |place| async {
            let next = place.lock().await.next().await?;
            Some((next, place))
        })
        .boxed()
    }

    fn counted(&self, key: &StreamKey, after: Position, entries: Entries) -> Entries {
        let place = Arc::new(AtomicU64::new(after.number()));
        let weak = Arc::downgrade(&place);
        self.streams().readers.entry(key.clone()).or_default().push(weak);
        entries
            .inspect(move |entry| {
                if let Ok(entry) = entry {
                    place.store(entry.position.number(), Ordering::SeqCst);
                }
            })
            .boxed()
    }

    /// Returns whether some reader is far behind `position`.
    fn is_ahead(&self, key: &StreamKey, position: Position) -> bool {
        let streams = self.streams();
        let mut readers = streams
            .readers
            .get(key)
            .into_iter()
            .flatten()
            .filter_map(Weak::upgrade);
        readers.any(|place| place.load(Ordering::SeqCst) + 100 < position.number())
    }
}

fn swapped(mut pair: Vec<Result<Entry>>) -> Vec<Result<Entry>> {
    if let [Ok(one), Ok(other)] = pair.as_mut_slice()
        && !other.event.is_end()
    {
        std::mem::swap(&mut one.event, &mut other.event);
    }
    pair
}

fn counted_from_zero(entry: Entry) -> Entry {
    Entry {
        position: Position::new(entry.position.number() - 1),
        ..entry
    }
}

#[async_trait]
impl StreamLog for DefectiveLog {
    async fn open(&self, key: &StreamKey) -> Result<Box<dyn StreamWriter>> {
        let times = self.streams().opened.get(key).copied().unwrap_or_default();
        if self.defect == StreamDefect::TakenForGood && times > 0 {
            return Err(already_exists(key));
        }
        if self.defect == StreamDefect::ReusedKeys {
            *self.streams().opened.entry(key.clone()).or_default() += 1;
        }
        let inner = self.log.open(&self.key(key)).await?;
        let mut streams = self.streams();
        if self.defect != StreamDefect::ReusedKeys {
            *streams.opened.entry(key.clone()).or_default() += 1;
        }
        streams.since.insert(key.clone(), Instant::now());
        streams.ended.remove(key);
        drop(streams);
        Ok(Box::new(DefectiveWriter {
            log: self.clone(),
            key: key.clone(),
            inner: Some(inner),
            bytes: AtomicUsize::new(0),
            deaf: CancellationToken::new(),
        }))
    }

    async fn read(&self, key: &StreamKey, after: Position) -> Result<Entries> {
        let since = self.streams().since.get(key).copied();
        if self.defect == StreamDefect::ExpiringWriters
            && since.is_some_and(|since| since.elapsed() >= self.keep_for)
        {
            return Err(not_found());
        }
        match self.entries(&self.key(key), after).await {
            Err(_) if self.defect == StreamDefect::UnknownIsEmpty => Ok(futures::stream::empty().boxed()),
            Err(error) => Err(self.unknown(key, error)),
            Ok(entries)
                if self.defect == StreamDefect::StopThatEnds && self.streams().ended.contains(key) =>
            {
                let stopped = Entry {
                    position: after.next(),
                    event: StreamEvent::Failed(Error::cancelled("stopped")),
                };
                drop(entries);
                Ok(futures::stream::iter([Ok(stopped)]).boxed())
            }
            entries => entries,
        }
    }

    async fn stop(&self, key: &StreamKey) -> Result<()> {
        let stopped = self.log.stop(&self.key(key)).await;
        self.streams().ended.insert(key.clone());
        stopped.map_err(|error| self.unknown(key, error))
    }

    async fn erase(&self, subject: &StreamSubject) -> Result<u64> {
        match self.defect {
            StreamDefect::IdleErasure => Ok(1),
            _ => self.log.erase(subject).await,
        }
    }
}

#[derive(Debug)]
struct DefectiveWriter {
    log: DefectiveLog,
    key: StreamKey,
    inner: Option<Box<dyn StreamWriter>>,
    bytes: AtomicUsize,
    /// A token for requests to stop that is never cancelled.
    deaf: CancellationToken,
}

impl DefectiveWriter {
    fn inner(&self) -> Result<&dyn StreamWriter> {
        self.inner
            .as_deref()
            .ok_or_else(|| Error::failed_precondition("the stream has ended already"))
    }
}

#[async_trait]
impl StreamWriter for DefectiveWriter {
    async fn append(&self, chunk: JsonText) -> Result<Position> {
        let key = self.log.key(&self.key);
        let bytes = self.bytes.fetch_add(chunk.as_str().len(), Ordering::SeqCst) + chunk.as_str().len();
        if self.log.defect == StreamDefect::GapAtTheBound && bytes > self.log.max_stream_bytes {
            return Err(Error::resource_exhausted("this chunk is dropped"));
        }
        let chunk = match self.log.defect {
            StreamDefect::RewrittenText => JsonText::of(&chunk.read::<Value>()?)?,
            _ => chunk,
        };
        let position = self.inner()?.append(chunk).await?;
        self.log.written(&key).store(position.number(), Ordering::SeqCst);
        while self.log.defect == StreamDefect::WaitsForReaders && self.log.is_ahead(&key, position) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(match self.log.defect {
            StreamDefect::PositionsFromZero => Position::new(position.number() - 1),
            _ => position,
        })
    }

    async fn finish(mut self: Box<Self>, outcome: Result<JsonText>) -> Result<()> {
        let inner = self.inner.take();
        let inner = inner.ok_or_else(|| Error::failed_precondition("the stream has ended already"))?;
        let outcome = match self.log.defect {
            StreamDefect::PublishedErrors => outcome.map_err(Error::with_public),
            _ => outcome,
        };
        inner.finish(outcome).await
    }

    async fn about(&self, subject: &StreamSubject) -> Result<()> {
        self.inner()?.about(subject).await
    }

    fn stop_requested(&self) -> CancellationToken {
        match (self.log.defect, &self.inner) {
            (StreamDefect::DeafToStops, _) | (_, None) => self.deaf.clone(),
            (_, Some(inner)) => inner.stop_requested(),
        }
    }
}

impl Drop for DefectiveWriter {
    fn drop(&mut self) {
        if self.log.defect == StreamDefect::SilentLoss {
            // Dropping the inner writer would end the stream for its readers.
            std::mem::forget(self.inner.take());
        }
    }
}
