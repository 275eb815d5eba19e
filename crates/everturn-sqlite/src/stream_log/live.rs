//! A stream that this process writes.
//!
//! Its newest chunks are in memory. Some are not in the file yet; their amount is bounded, because the writer
//! waits when there are too many. Others are in the file already and stay in memory, so that readers who keep
//! up never read the file. Readers get only those in the file: a client never holds a chunk that a crash
//! takes back.

use std::collections::VecDeque;

use everturn_core::stream_log::{
    Entry, JsonText, Position, StoredError, StreamEvent, WRITER_LOST, too_large,
};
use everturn_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How many unwritten bytes there may be before the writer waits.
const MAX_UNWRITTEN: usize = 1024 * 1024;

/// How many written bytes stay in memory.
const MAX_KEPT: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Live {
    /// The stream's key in the database.
    pub(super) row: i64,
    pub(super) stop: CancellationToken,
    /// The greatest number of bytes of chunks in the stream.
    max_bytes: usize,
    state: Mutex<State>,
    /// Notified when there are new events, or room for more.
    news: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The chunks in memory, which are the last ones of the stream.
    tail: VecDeque<JsonText>,
    /// The number of chunks before those in memory.
    before: u64,
    /// How many of the chunks in memory are in the file, and their size.
    kept: usize,
    kept_bytes: usize,
    unwritten_bytes: usize,
    /// The size of all chunks of the stream.
    bytes: usize,
    /// Whether the thread was queued that there are chunks to write.
    queued: bool,
    end: Option<StreamEvent>,
    /// Whether nothing more is written to the file. Chunks that it lacks then are read from memory alone: it
    /// has no room for them, or cannot be written.
    is_final: bool,
}

impl State {
    fn total(&self) -> u64 {
        self.before + self.tail.len() as u64
    }
}

/// The next event for a reader.
pub(super) enum Next {
    /// The next event.
    Here(Entry),
    /// The next event is no longer in memory.
    InFile,
    /// There is no next event yet.
    NotYet,
}

/// The outcome of adding a chunk.
#[derive(Debug)]
pub(super) enum Pushed {
    /// The chunk was added.
    Added(Position, Queued),
    /// The chunk makes the stream too large. The stream has ended, and its end is yet to be written to the
    /// file.
    TooLarge(Error),
}

/// Whether the thread must be queued that there are chunks to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queued {
    Already,
    NotYet,
}

impl Live {
    pub(super) fn new(row: i64, max_bytes: usize) -> Self {
        Self {
            row,
            max_bytes,
            stop: CancellationToken::new(),
            state: Mutex::default(),
            news: watch::Sender::new(()),
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Adds a chunk, once there is room for it.
    pub(super) async fn push(&self, chunk: JsonText) -> Result<Pushed> {
        let mut news = self.subscribe();
        loop {
            if let Some(pushed) = self.push_now(&chunk)? {
                return Ok(pushed);
            }
            // The sender is here, so it cannot close.
            let _ = news.changed().await;
        }
    }

    fn push_now(&self, chunk: &JsonText) -> Result<Option<Pushed>> {
        let mut state = self.state.lock();
        if let Some(end) = &state.end {
            return Err(refusal(end));
        }
        let bytes = state.bytes.saturating_add(chunk.as_str().len());
        // The stream ends for its readers. Whether the work goes on is the writer's decision.
        if bytes > self.max_bytes {
            let error = too_large(self.max_bytes);
            state.end = Some(StreamEvent::Failed(StoredError::from(&error).into()));
            return Ok(Some(Pushed::TooLarge(error)));
        }
        // The writer waits for the file, not for readers.
        if state.unwritten_bytes >= MAX_UNWRITTEN {
            return Ok(None);
        }
        state.bytes = bytes;
        state.unwritten_bytes += chunk.as_str().len();
        state.tail.push_back(chunk.clone());
        let queued = if std::mem::replace(&mut state.queued, true) {
            Queued::Already
        } else {
            Queued::NotYet
        };
        Ok(Some(Pushed::Added(Position::new(state.total()), queued)))
    }

    /// Returns the error for further chunks, if the stream has ended.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.state.lock().end.as_ref().map(refusal)
    }

    /// Returns the chunks that are not in the file yet, and the position of the first.
    pub(super) fn unwritten(&self) -> (Position, Vec<JsonText>) {
        let mut state = self.state.lock();
        state.queued = false;
        let first = Position::new(state.before + state.kept as u64).next();
        (first, state.tail.iter().skip(state.kept).cloned().collect())
    }

    /// Notes that the first `count` unwritten chunks are in the file now.
    pub(super) fn written(&self, count: usize) {
        let mut state = self.state.lock();
        let from = state.kept;
        let bytes: usize = state
            .tail
            .iter()
            .skip(from)
            .take(count)
            .map(|chunk| chunk.as_str().len())
            .sum();
        state.kept += count;
        state.kept_bytes += bytes;
        state.unwritten_bytes -= bytes;
        // Readers that are further behind read the file.
        while state.kept_bytes > MAX_KEPT {
            let Some(chunk) = state.tail.pop_front() else {
                break;
            };
            state.kept_bytes -= chunk.as_str().len();
            state.kept -= 1;
            state.before += 1;
        }
        drop(state);
        self.news.send_replace(());
    }

    /// Ends the stream, unless it has ended. Nothing more of it is written to the file.
    pub(super) fn end(&self, event: StreamEvent) {
        let mut state = self.state.lock();
        state.end.get_or_insert(event);
        state.is_final = true;
        drop(state);
        self.news.send_replace(());
    }

    /// Drops the chunks in memory, because the stream was erased.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        state.before = state.total();
        state.tail = VecDeque::new();
        (state.kept, state.kept_bytes, state.unwritten_bytes) = (0, 0, 0);
    }

    /// Returns the event after a position.
    pub(super) fn next_after(&self, after: Position) -> Next {
        let state = self.state.lock();
        let Some(index) = after.number().checked_sub(state.before) else {
            return Next::InFile;
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(chunk) = state.tail.get(index) {
            if index >= state.kept && !state.is_final {
                return Next::NotYet;
            }
            return Next::Here(Entry::new(after.next(), StreamEvent::Chunk(chunk.clone())));
        }
        match &state.end {
            Some(end) if state.is_final => {
                Next::Here(Entry::new(Position::new(state.total()).next(), end.clone()))
            }
            _ => Next::NotYet,
        }
    }
}

fn refusal(end: &StreamEvent) -> Error {
    match end {
        StreamEvent::Failed(error) if error.is(WRITER_LOST) => Error::failed_precondition(
            "the stream was ended by another process, because this one was silent for longer than its lease: \
             allow a longer one",
        ),
        StreamEvent::Failed(error) => error.clone(),
        _ => Error::failed_precondition("the stream has ended already"),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn text(length: usize) -> JsonText {
        JsonText::of(&"x".repeat(length)).unwrap()
    }

    #[test]
    fn memory_holds_what_is_not_written_and_a_bounded_part_of_what_is() {
        let live = Live::new(1, usize::MAX);
        for _ in 0..100 {
            live.push(text(10_000)).now_or_never().unwrap().unwrap();
        }

        let (first, chunks) = live.unwritten();
        live.written(chunks.len());

        assert_eq!((first, chunks.len()), (Position::new(1), 100));
        assert!(matches!(live.next_after(Position::START), Next::InFile));
        assert!(matches!(live.next_after(Position::new(99)), Next::Here(_)));
        assert!(matches!(live.next_after(Position::new(100)), Next::NotYet));
        let state = live.state.lock();
        assert!(state.kept_bytes <= MAX_KEPT && state.unwritten_bytes == 0);
        assert_eq!(state.total(), 100);
    }

    #[test]
    fn readers_wait_for_the_file_and_get_the_rest_from_memory_if_it_cannot_be_written() {
        let live = Live::new(1, usize::MAX);
        live.push(text(1)).now_or_never().unwrap().unwrap();
        assert!(matches!(live.next_after(Position::START), Next::NotYet));

        live.written(1);
        live.push(text(1)).now_or_never().unwrap().unwrap();
        assert!(matches!(live.next_after(Position::START), Next::Here(_)));
        assert!(matches!(live.next_after(Position::new(1)), Next::NotYet));

        live.end(StreamEvent::Failed(Error::unavailable("the disk is full")));
        for position in [1, 2] {
            assert!(matches!(live.next_after(Position::new(position)), Next::Here(_)));
        }
    }

    #[test]
    fn a_writer_waits_for_the_file_when_too_much_is_unwritten() {
        let live = Live::new(1, usize::MAX);
        live.push(text(MAX_UNWRITTEN)).now_or_never().unwrap().unwrap();
        let mut waiting = Box::pin(live.push(text(1)));
        assert!(waiting.as_mut().now_or_never().is_none());

        let (_, chunks) = live.unwritten();
        live.written(chunks.len());

        let Pushed::Added(position, queued) = waiting.now_or_never().unwrap().unwrap() else {
            panic!("the stream may be as large as it likes");
        };
        assert_eq!((position, queued), (Position::new(2), Queued::NotYet));
    }
}
