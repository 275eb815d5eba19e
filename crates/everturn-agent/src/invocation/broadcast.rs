//! What watchers of a detached run are shown: its chunks, in a log that belongs to nobody's connection.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use everturn_core::stream_log::{JsonText, StreamKey, StreamLog, StreamWriter};
use everturn_core::{Error, Result};
use futures::future::BoxFuture;

use super::outbox::Receipt;
use crate::AgentStreamChunk;

/// The run's stream, and what is on its way there. It is begun with the first chunk; a stream that cannot be written is
/// over, and the run is none the worse for it.
pub(super) struct Broadcast {
    log: Arc<dyn StreamLog>,
    state: State,
    queue: VecDeque<(JsonText, Taken)>,
    writing: Option<(Writing, Taken)>,
    writer: Option<Box<dyn StreamWriter>>,
}

/// Whoever waits for a chunk to be taken.
type Taken = Option<Receipt>;

/// A chunk that is being written; it has the writer until it is done.
type Writing = BoxFuture<'static, Result<Box<dyn StreamWriter>>>;

enum State {
    /// There is no detached run.
    Off,
    /// There will be one as soon as its row is written; chunks wait for that.
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

    /// Chunks are for watchers from now on.
    pub(super) fn expect(&mut self) {
        self.state = State::Expected;
    }

    /// The run has a name: what waits may be written.
    pub(super) fn begin(&mut self, key: StreamKey) {
        self.state = State::On(key);
    }

    /// Nothing more is shown, whoever waits is released, and readers learn that there is no more.
    pub(super) fn close(&mut self) {
        self.state = State::Over;
        self.queue.clear();
        self.writing = None;
        self.writer = None;
    }

    pub(super) fn wants(&self) -> bool {
        matches!(self.state, State::Expected | State::On(_))
    }

    /// Queues a chunk, or only the wish to know when all before it were taken.
    pub(super) fn queue(&mut self, chunk: Option<&AgentStreamChunk>, taken: Taken) {
        match chunk.map(JsonText::of) {
            _ if !self.wants() => {}
            Some(Ok(text)) => self.queue.push_back((text, taken)),
            // Watchers must not miss a chunk without noticing.
            Some(Err(_)) => self.close(),
            None => match self.queue.back_mut() {
                Some((_, last @ None)) => *last = taken,
                // Behind somebody else's wish, or behind nothing: there is no slow reader to wait for.
                _ => drop(taken),
            },
        }
    }

    /// Writes what is queued. May be dropped at any time without losing a chunk.
    pub(super) async fn work(&mut self) -> Infallible {
        loop {
            self.settle().await;
            if !self.write_next() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends the stream, after all that is queued. One that was dropped instead is known to be broken off.
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
        // Dropping it tells whoever waited.
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
