//! The state that the thread shares with handles, writers and readers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::stream_log::{StreamEvent, StreamKey};
use tokio::sync::watch;

use super::live::Live;
use super::options::SqliteStreamLogOptions;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: SqliteStreamLogOptions,
    /// The streams that this process writes.
    live: Mutex<HashMap<StreamKey, Arc<Live>>>,
    changes: watch::Sender<Change>,
    /// The number of readers of other processes' streams.
    strangers: AtomicUsize,
}

/// What a reader of the file waits for: a change.
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
            changes: watch::Sender::new(Change::New),
            strangers: AtomicUsize::new(0),
        }
    }

    pub(super) fn live(&self) -> MutexGuard<'_, HashMap<StreamKey, Arc<Live>>> {
        // Every change is a single insertion or removal.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a stream that this process has ceased to write.
    pub(super) fn end(&self, key: &StreamKey, live: &Live, event: StreamEvent) {
        // Removed before the end is told, so that a reader which has seen the end finds the stream in the file, where it can expire.
        self.live().remove(key);
        live.end(event);
    }

    pub(super) fn changed(&self) {
        self.changes.send_replace(Change::New);
    }

    pub(super) fn over(&self) {
        self.changes.send_replace(Change::Over);
    }

    pub(super) fn has_strangers(&self) -> bool {
        self.strangers.load(Ordering::Relaxed) > 0
    }
}

/// A reader of another process's stream. While there is one, the thread polls the file for changes.
#[derive(Debug)]
pub(super) struct Stranger {
    shared: Arc<Shared>,
    pub(super) changes: watch::Receiver<Change>,
}

impl Stranger {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.strangers.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            changes: shared.changes.subscribe(),
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.shared.strangers.fetch_sub(1, Ordering::Relaxed);
    }
}
