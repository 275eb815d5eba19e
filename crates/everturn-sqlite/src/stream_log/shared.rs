//! The state that the thread shares with handles, writers and readers.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_core::stream_log::{StreamEvent, StreamKey};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::live::Live;
use super::rows::Progress;
use super::stream_options::SqliteStreamLogOptions;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: SqliteStreamLogOptions,
    /// The streams that this process writes.
    pub(super) live: Mutex<HashMap<StreamKey, Arc<Live>>>,
    /// The streams of other processes that are read here.
    watched: Mutex<Watched>,
}

/// The streams of other processes that are read here. However many readers a stream has, it is polled once.
/// A stream whose readers are dropped is removed when the streams are polled next.
#[derive(Debug, Default)]
struct Watched {
    streams: HashMap<i64, WatchedStream>,
    is_over: bool,
}

#[derive(Debug)]
struct WatchedStream {
    changes: watch::Sender<Change>,
    /// How far the stream had come when the file was last polled; `None` before that, and if the stream was
    /// removed.
    seen: Option<Progress>,
}

/// A change that a reader of the file waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The file may have changed.
    New,
    /// The file is not polled any more.
    Over,
}

impl Shared {
    pub(super) fn new(options: SqliteStreamLogOptions) -> Self {
        Self {
            options,
            live: Mutex::default(),
            watched: Mutex::default(),
        }
    }

    /// Removes a stream that this process has ceased to write.
    pub(super) fn end(&self, key: &StreamKey, live: &Live, event: StreamEvent) {
        // Removed before the end is reported, so that a reader that has seen the end finds the stream in the
        // file, where it expires.
        self.live.lock().remove(key);
        live.end(event);
    }

    /// Returns the streams of other processes that are read here.
    pub(super) fn watched_streams(&self) -> Vec<i64> {
        let mut watched = self.watched.lock();
        watched
            .streams
            .retain(|_, stream| stream.changes.receiver_count() > 0);
        watched.streams.keys().copied().collect()
    }

    /// Returns the changes of another process's stream, for a reader. While it reads, the thread polls the
    /// stream.
    pub(super) fn watch(&self, stream: i64) -> watch::Receiver<Change> {
        let mut watched = self.watched.lock();
        let first = if watched.is_over {
            Change::Over
        } else {
            Change::New
        };
        let entry = watched.streams.entry(stream).or_insert_with(|| WatchedStream {
            changes: watch::Sender::new(first),
            seen: None,
        });
        entry.changes.subscribe()
    }

    /// Wakes the readers of a stream if it has changed since the last poll.
    pub(super) fn polled(&self, stream: i64, progress: Option<Progress>) {
        if let Some(watched) = self.watched.lock().streams.get_mut(&stream)
            && (watched.seen != progress || progress.is_none())
        {
            watched.seen = progress;
            watched.changes.send_replace(Change::New);
        }
    }

    /// Reports to all readers that the file is no longer polled.
    pub(super) fn over(&self) {
        let mut watched = self.watched.lock();
        watched.is_over = true;
        for stream in watched.streams.values() {
            stream.changes.send_replace(Change::Over);
        }
    }

    pub(super) fn has_strangers(&self) -> bool {
        !self.watched_streams().is_empty()
    }
}
