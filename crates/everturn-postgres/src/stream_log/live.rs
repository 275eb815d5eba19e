//! A stream that this process writes: its chunks, its end, and how many of them are in the database.
//!
//! Readers get only what is in the database: a client never holds a chunk that a crash takes back.

use everturn_core::stream_log::{Entry, JsonText, Position, StoredError, StreamEvent, too_large};
use everturn_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::stream_options::PostgresStreamLogOptions;

#[derive(Debug)]
pub(super) struct Live {
    /// The stream's key in the database.
    pub(super) row: i64,
    pub(super) stop: CancellationToken,
    options: PostgresStreamLogOptions,
    state: Mutex<State>,
    /// Notified when there are new events.
    news: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<JsonText>,
    bytes: usize,
    /// How many chunks are in the database.
    written: usize,
    end: Option<StreamEvent>,
    ended_at: Option<i64>,
    /// Whether nothing more is written to the database. Events that it lacks then are read from memory alone.
    is_final: bool,
}

/// The part of a stream that is not in the database yet.
pub(super) struct Unwritten {
    /// The position of the first chunk.
    pub(super) first: u64,
    pub(super) chunks: Vec<JsonText>,
    pub(super) end: Option<StreamEvent>,
    /// When the stream ended, which may be some time before that is written.
    pub(super) ended_at: Option<i64>,
}

impl Live {
    pub(super) fn new(row: i64, options: PostgresStreamLogOptions) -> Self {
        Self {
            row,
            options,
            stop: CancellationToken::new(),
            state: Mutex::default(),
            news: watch::Sender::new(()),
        }
    }

    /// Adds a chunk and returns its position.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the stream is too large, which ends it; the end's error if it has ended.
    pub(super) fn push(&self, chunk: JsonText) -> Result<Position> {
        let mut state = self.state.lock();
        if let Some(end) = &state.end {
            return Err(after_the_end(end));
        }
        state.bytes += chunk.as_str().len();
        if state.bytes > self.options.max_stream_bytes {
            let error = too_large(self.options.max_stream_bytes);
            state.ended_at = Some(self.options.now());
            state.end = Some(StreamEvent::Failed(StoredError::from(&error).into()));
            drop(state);
            self.news.send_replace(());
            return Err(error);
        }
        state.chunks.push(chunk);
        let position = Position::new(state.chunks.len() as u64);
        drop(state);
        self.news.send_replace(());
        Ok(position)
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// The error of the end that it has already.
    pub(super) fn end(&self, end: StreamEvent) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(end) = &state.end {
            return Err(after_the_end(end));
        }
        state.ended_at = Some(self.options.now());
        state.end = Some(end);
        drop(state);
        self.news.send_replace(());
        Ok(())
    }

    /// Returns the event after a position, if there is one.
    pub(super) fn after(&self, position: Position) -> Option<Entry> {
        let state = self.state.lock();
        let index = usize::try_from(position.number()).unwrap_or(usize::MAX);
        if index >= state.written && !state.is_final {
            return None;
        }
        if let Some(chunk) = state.chunks.get(index) {
            return Some(Entry::new(position.next(), StreamEvent::Chunk(chunk.clone())));
        }
        // A reader that starts beyond the end gets only the end, at its own position.
        state
            .end
            .clone()
            .map(|event| Entry::new(Position::new(state.chunks.len() as u64).next(), event))
    }

    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    pub(super) fn unwritten(&self) -> Unwritten {
        let state = self.state.lock();
        Unwritten {
            first: state.written as u64 + 1,
            chunks: state.chunks[state.written..].to_vec(),
            end: state.end.clone(),
            ended_at: state.ended_at,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().end.is_some()
    }

    /// Whether the stream has ended so long ago that it is not kept any more.
    pub(super) fn is_expired(&self) -> bool {
        let before = self.options.expired_before();
        self.state
            .lock()
            .ended_at
            .is_some_and(|ended_at| ended_at < before)
    }

    pub(super) fn written(&self, chunks: usize) {
        self.state.lock().written += chunks;
        self.news.send_replace(());
    }

    /// Notes that nothing more of the stream, which has ended, is written.
    pub(super) fn set_final(&self) {
        self.state.lock().is_final = true;
        self.news.send_replace(());
    }
}

/// The error of a write to a stream that has already ended.
fn after_the_end(end: &StreamEvent) -> Error {
    match end {
        StreamEvent::Failed(error) => error.clone(),
        _ => Error::failed_precondition("the stream has ended already"),
    }
}
