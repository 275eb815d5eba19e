//! Reading a stream, from memory where possible and else from the file.

use std::collections::VecDeque;
use std::sync::Arc;

use everturn_core::Result;
use everturn_core::stream_log::{Entry, JsonText, Position, StreamEvent, not_found};
use tokio::sync::watch;

use super::live::{Live, Next};
use super::rows::Found;
use super::shared::Change;
use super::{SqliteStreamLog, stopped};

/// A reader of one stream. It buffers at most one read of the file.
pub(super) struct Reader {
    log: SqliteStreamLog,
    row: i64,
    source: Source,
    seen: Position,
    /// Chunks that were read from the file and not delivered yet.
    buffer: VecDeque<JsonText>,
    is_over: bool,
}

/// The writer of the stream.
enum Source {
    /// This process.
    Here(Arc<Live>, watch::Receiver<()>),
    /// Another process, or none any more.
    Elsewhere(watch::Receiver<Change>),
}

impl Reader {
    pub(super) fn here(log: SqliteStreamLog, live: Arc<Live>, after: Position) -> Self {
        let news = live.subscribe();
        Self::new(log, live.row, Source::Here(live, news), after)
    }

    pub(super) fn elsewhere(log: SqliteStreamLog, row: i64, after: Position) -> Self {
        let changes = log.0.shared.watch(row);
        Self::new(log, row, Source::Elsewhere(changes), after)
    }

    fn new(log: SqliteStreamLog, row: i64, source: Source, seen: Position) -> Self {
        Self {
            log,
            row,
            source,
            seen,
            buffer: VecDeque::new(),
            is_over: false,
        }
    }

    /// Returns the next entry, for `futures::stream::unfold`.
    pub(super) async fn step(mut self) -> Option<(Result<Entry>, Self)> {
        if self.is_over {
            return None;
        }
        let next = self.next().await;
        match &next {
            Ok(entry) => {
                self.seen = entry.position;
                self.is_over = entry.event.is_end();
            }
            Err(_) => self.is_over = true,
        }
        Some((next, self))
    }

    async fn next(&mut self) -> Result<Entry> {
        loop {
            if let Some(chunk) = self.buffer.pop_front() {
                return Ok(Entry {
                    position: self.seen.next(),
                    event: StreamEvent::Chunk(chunk),
                });
            }
            match &mut self.source {
                Source::Here(live, news) => match live.next_after(self.seen) {
                    Next::Here(entry) => return Ok(entry),
                    Next::InFile => {
                        self.read_file().await?;
                    }
                    Next::NotYet => {
                        // The live stream owns the sender, so the channel cannot close.
                        let _ = news.changed().await;
                    }
                },
                Source::Elsewhere(changes) => {
                    // Marked before the file is read: a change meanwhile is read twice rather than missed.
                    let change = *changes.borrow_and_update();
                    let Found { written, end, .. } = self.read_file().await?;
                    if !self.buffer.is_empty() {
                        continue;
                    }
                    if let Some(event) = end {
                        return Ok(Entry {
                            position: Position::new(written).next(),
                            event,
                        });
                    }
                    if change == Change::Over {
                        return Err(stopped());
                    }
                    if let Source::Elsewhere(changes) = &mut self.source {
                        // The shared state owns the sender, so the channel cannot close.
                        let _ = changes.changed().await;
                    }
                }
            }
        }
    }

    /// Fills the buffer and returns the end of the stream, if the file has it.
    async fn read_file(&mut self) -> Result<Found> {
        let mut found = self.log.after(self.row, self.seen).await?.ok_or_else(not_found)?;
        self.buffer = std::mem::take(&mut found.chunks).into();
        Ok(found)
    }
}
