//! Reading a stream, from memory where possible and else from the file.

use std::collections::VecDeque;
use std::sync::Arc;

use everturn_core::Result;
use everturn_core::stream_log::{Entry, JsonText, Position, StreamEvent, not_found};
use everturn_sql::EntrySource;
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
    /// Chunks that were read from the file and not delivered yet.
    buffer: VecDeque<JsonText>,
}

/// The writer of the stream.
enum Source {
    /// This process.
    Here(Arc<Live>, watch::Receiver<()>),
    /// Another process, or none any more.
    Elsewhere(watch::Receiver<Change>),
}

impl Reader {
    pub(super) fn here(log: SqliteStreamLog, live: Arc<Live>) -> Self {
        let news = live.subscribe();
        Self::new(log, live.row, Source::Here(live, news))
    }

    pub(super) fn elsewhere(log: SqliteStreamLog, row: i64) -> Self {
        let changes = log.0.shared.watch(row);
        Self::new(log, row, Source::Elsewhere(changes))
    }

    fn new(log: SqliteStreamLog, row: i64, source: Source) -> Self {
        Self {
            log,
            row,
            source,
            buffer: VecDeque::new(),
        }
    }

    /// Fills the buffer and returns the end of the stream, if the file has it.
    async fn read_file(&mut self, after: Position) -> Result<Found> {
        let mut found = self.log.after(self.row, after).await?.ok_or_else(not_found)?;
        self.buffer = std::mem::take(&mut found.chunks).into();
        Ok(found)
    }
}

impl EntrySource for Reader {
    async fn next(&mut self, after: Position) -> Result<Entry> {
        loop {
            if let Some(chunk) = self.buffer.pop_front() {
                return Ok(Entry::new(after.next(), StreamEvent::Chunk(chunk)));
            }
            match &mut self.source {
                Source::Here(live, news) => match live.next_after(after) {
                    Next::Here(entry) => return Ok(entry),
                    Next::InFile => {
                        self.read_file(after).await?;
                    }
                    Next::NotYet => {
                        // The live stream owns the sender, so the channel cannot close.
                        let _ = news.changed().await;
                    }
                },
                Source::Elsewhere(changes) => {
                    // Marked before the file is read: a change meanwhile is read twice rather than missed.
                    let change = *changes.borrow_and_update();
                    let Found { written, end, .. } = self.read_file(after).await?;
                    if !self.buffer.is_empty() {
                        continue;
                    }
                    if let Some(event) = end {
                        return Ok(Entry::new(Position::new(written).next(), event));
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
}
