//! The stream of a background run: its chunks, written to a stream log for the watchers of the run.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use everturn_core::stream_log::{JsonText, StreamKey, StreamLog, StreamWriter};
use everturn_core::{Error, Result};
use futures::future::BoxFuture;

use super::function::Receipt;
use crate::AgentStreamChunk;

/// The run's stream, and the chunks on their way to it. The stream is opened with the first chunk. If it
/// cannot be written, it ends, and the run continues.
pub(super) struct Broadcast {
    log: Arc<dyn StreamLog>,
    state: State,
    queue: VecDeque<(JsonText, Taken)>,
    writing: Option<(Writing, Taken)>,
    writer: Option<Box<dyn StreamWriter>>,
}

/// Dropped when the chunk was taken, which releases the code that waits for it.
type Taken = Option<Receipt>;

/// A chunk that is being written. It holds the writer until it is done.
type Writing = BoxFuture<'static, Result<Box<dyn StreamWriter>>>;

enum State {
    /// The invocation has a client, and no stream.
    Off,
    /// The pending snapshot is being written; chunks wait for it.
    Expected,
    On(StreamKey),
    Over,
}

impl Broadcast {
    pub(super) fn new(log: Arc<dyn StreamLog>) -> Self {
        Self {
            log,
            state: State::Off,
            queue: VecDeque::new(),
            writing: None,
            writer: None,
        }
    }

    /// Queues chunks from now on.
    pub(super) fn expect(&mut self) {
        self.state = State::Expected;
    }

    /// Writes queued chunks from now on, to the stream of this name.
    pub(super) fn begin(&mut self, key: StreamKey) {
        self.state = State::On(key);
    }

    /// Drops the queue, shows nothing more, and breaks the stream off for its readers.
    pub(super) fn close(&mut self) {
        self.state = State::Over;
        self.queue.clear();
        self.writing = None;
        self.writer = None;
    }

    pub(super) fn wants(&self) -> bool {
        matches!(self.state, State::Expected | State::On(_))
    }

    /// Queues a chunk, or only a receipt for all chunks before it.
    pub(super) fn queue(&mut self, chunk: Option<&AgentStreamChunk>, taken: Taken) {
        match chunk.map(JsonText::of) {
            _ if !self.wants() => {}
            Some(Ok(text)) => self.queue.push_back((text, taken)),
            // A stream that is broken off is noticed by its readers; one with a gap is not.
            Some(Err(_)) => self.close(),
            None => match self.queue.back_mut() {
                Some((_, last @ None)) => *last = taken,
                // The log takes chunks as fast as they come, so a receipt without a chunk need not wait.
                _ => drop(taken),
            },
        }
    }

    /// Writes the queued chunks. May be dropped at any time without losing a chunk.
    pub(super) async fn work(&mut self) -> Infallible {
        loop {
            self.settle().await;
            if !self.write_next() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Writes the queued chunks and ends the stream. A stream that is dropped instead counts as broken off.
    pub(super) async fn finish(mut self) {
        loop {
            self.settle().await;
            if !self.write_next() {
                break;
            }
        }
        if let Some(writer) = self.writer.take() {
            let end = JsonText::of(&()).expect("null is JSON");
            if let Err(error) = writer.finish(Ok(end)).await {
                tracing::debug!(%error, "the stream of a background run was not ended");
            }
        }
    }

    async fn settle(&mut self) {
        let Some((writing, _)) = &mut self.writing else {
            return;
        };
        let written = writing.await;
        drop(self.writing.take());
        match written {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => {
                tracing::debug!(%error, "a background run is no longer shown");
                self.close();
            }
        }
    }

    fn write_next(&mut self) -> bool {
        let State::On(key) = &self.state else {
            return false;
        };
        let Some((text, taken)) = self.queue.pop_front() else {
            return false;
        };
        let (log, key, writer) = (Arc::clone(&self.log), key.clone(), self.writer.take());
        let writing = async move {
            let writer = match writer {
                Some(writer) => writer,
                None => log.open(&key).await?,
            };
            writer.append(text).await?;
            Ok::<_, Error>(writer)
        };
        self.writing = Some((Box::pin(writing), taken));
        true
    }
}
