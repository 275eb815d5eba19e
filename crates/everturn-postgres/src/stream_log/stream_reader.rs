//! A reader of a stream: of one that this process writes, or of one in the database.

use std::collections::VecDeque;
use std::sync::Arc;

use everturn_core::Result;
use everturn_core::stream_log::{Entry, Position, not_found};
use everturn_sql::EntrySource;
use tokio::sync::watch;

use super::live::Live;
use super::rows;
use super::stream_options::PostgresStreamLogOptions;
use crate::connection::Database;

pub(super) enum Reader {
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
    pub(super) fn here(live: Arc<Live>) -> Self {
        let news = live.news();
        Self::Here { live, news }
    }

    pub(super) fn elsewhere(db: Arc<Database>, row: i64, options: PostgresStreamLogOptions) -> Self {
        Self::Elsewhere {
            db,
            row,
            options: Box::new(options),
            read: VecDeque::new(),
        }
    }
}

impl EntrySource for Reader {
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
