//! A reader of a stream: of one that this process writes, or of one in the database.

use std::collections::VecDeque;
use std::sync::Arc;

use everturn_core::Result;
use everturn_core::stream_log::{Entry, Position, not_found};
use tokio::sync::watch;

use super::live::Live;
use super::rows;
use super::stream_options::PostgresStreamLogOptions;
use crate::connection::Database;

pub(super) struct Reader {
    source: Source,
    after: Position,
    is_over: bool,
}

enum Source {
    Here {
        live: Arc<Live>,
        news: watch::Receiver<()>,
    },
    Elsewhere {
        db: Arc<Database>,
        row: i64,
        options: Box<PostgresStreamLogOptions>,
        read: VecDeque<Entry>,
    },
}

impl Reader {
    pub(super) fn here(live: Arc<Live>, after: Position) -> Self {
        let news = live.news();
        Self {
            source: Source::Here { live, news },
            after,
            is_over: false,
        }
    }

    pub(super) fn elsewhere(
        db: Arc<Database>,
        row: i64,
        options: PostgresStreamLogOptions,
        after: Position,
    ) -> Self {
        let (options, read) = (Box::new(options), VecDeque::new());
        Self {
            source: Source::Elsewhere {
                db,
                row,
                options,
                read,
            },
            after,
            is_over: false,
        }
    }

    /// Returns the next entry and the reader after it.
    pub(super) async fn step(mut self) -> Option<(Result<Entry>, Self)> {
        if self.is_over {
            return None;
        }
        let next = self.source.next(self.after).await;
        match &next {
            Ok(entry) => {
                self.after = entry.position;
                self.is_over = entry.event.is_end();
            }
            Err(_) => self.is_over = true,
        }
        Some((next, self))
    }
}

impl Source {
    async fn next(&mut self, after: Position) -> Result<Entry> {
        match self {
            Self::Here { live, news } => loop {
                // Marked before it is looked for, so that what comes in between is news.
                news.mark_unchanged();
                if let Some(entry) = live.after(after) {
                    return Ok(entry);
                }
                // The sender lives as long as the stream that is held here.
                let _ = news.changed().await;
            },
            Self::Elsewhere {
                db,
                row,
                options,
                read,
            } => loop {
                if let Some(entry) = read.pop_front() {
                    return Ok(entry);
                }
                let found = rows::after(db, *row, after, options.now()).await;
                let found = found.map_err(|fault| fault.into_error(&db.place))?;
                read.extend(found.ok_or_else(not_found)?);
                if read.is_empty() {
                    tokio::time::sleep(options.poll).await;
                }
            },
        }
    }
}
