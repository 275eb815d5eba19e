//! Watching the status of rows.
//!
//! One thread reads statuses and tells them to watchers, so a watcher never hears an older status after a newer one. The
//! thread reads a row when a watcher arrives and when this process has changed the row. While there are watchers, it also
//! polls SQLite's `data_version` at short intervals and reads the watched rows again when another process has committed.
//! Without watchers it sleeps. It ends with its store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use everturn_agent::store::{Scope, StatusStream};
use everturn_agent::{SnapshotId, SnapshotStatus};
use futures::StreamExt;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::watch;

use crate::connection::{data_version, open_reader};
use crate::fault::Outcome;
use crate::options::SqliteStoreOptions;
use crate::read;

/// The scope and the id of a row.
pub(crate) type Key = (Scope, SnapshotId);

/// The last status that was told to the watchers of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    NotYet,
    Status(SnapshotStatus),
    Gone,
}

/// The watched rows.
pub(crate) struct Watchers {
    shared: Arc<Shared>,
    options: SqliteStoreOptions,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    rows: HashMap<Key, Vec<watch::Sender<Seen>>>,
    /// Rows to read without delay.
    changed: HashSet<Key>,
    running: bool,
    closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is a single insertion or removal.
        self.state.lock()
    }
}

impl Watchers {
    pub(crate) fn new(options: SqliteStoreOptions) -> Self {
        Self {
            shared: Arc::default(),
            options,
            thread: Mutex::default(),
        }
    }

    /// Has the thread read these rows again.
    pub(crate) fn notice(&self, changed: Vec<Key>) {
        let mut state = self.shared.state();
        let watched: Vec<Key> = changed
            .into_iter()
            .filter(|key| state.rows.contains_key(key))
            .collect();
        if !watched.is_empty() {
            state.changed.extend(watched);
            self.shared.wake.notify_one();
        }
    }

    /// Returns the statuses of a row, the current one first. The stream ends when the row does not exist.
    pub(crate) fn watch(&self, key: Key) -> StatusStream {
        let (sender, receiver) = watch::channel(Seen::NotYet);
        let mut state = self.shared.state();
        if state.closed {
            return futures::stream::empty().boxed();
        }
        state.rows.entry(key.clone()).or_default().push(sender);
        state.changed.insert(key);
        if !state.running {
            state.running = self.start();
        }
        self.shared.wake.notify_one();
        drop(state);
        statuses(receiver)
    }

    /// Whether the thread runs. If it could not be started, the next watcher tries again.
    fn start(&self) -> bool {
        let (shared, options) = (Arc::clone(&self.shared), self.options.clone());
        let thread = std::thread::Builder::new().name("everturn-watch".to_owned()).spawn(move || {
            if let Err(fault) = run(&shared, &options) {
                let error = fault.into_error(&options.path);
                tracing::warn!(%error, "cannot watch session rows; their watchers are told that it is over");
            }
            let mut state = shared.state();
            state.running = false;
            state.rows.clear();
        });
        match thread {
            Ok(thread) => {
                *self.thread() = Some(thread);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start a thread to watch session rows");
                false
            }
        }
    }

    /// Ends every watch, and waits until the thread has closed its connection. Blocks.
    pub(crate) fn close(&self) {
        self.shared.state().closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread().take() {
            // A thread that panicked has closed its connection too.
            let _ = thread.join();
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock()
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(shared: &Shared, options: &SqliteStoreOptions) -> Outcome<()> {
    let connection = open_reader(&options.path, options.busy_timeout)?;
    let mut version = data_version(&connection)?;
    while let Some(changed) = wait(shared, options.poll) {
        // Read before the rows: a change in between is read twice rather than missed.
        let now = data_version(&connection)?;
        let rows: Vec<Key> = if now == version {
            changed.into_iter().collect()
        } else {
            shared.state().rows.keys().cloned().collect()
        };
        version = now;
        for key in rows {
            match read::status(&connection, key.0.as_str(), key.1.as_str()) {
                Ok(status) => tell(shared, &key, status.map_or(Seen::Gone, Seen::Status)),
                Err(fault) if fault.is_busy() => {
                    shared.state().changed.insert(key);
                }
                Err(fault) => return Err(fault),
            }
        }
    }
    Ok(())
}

/// Waits until rows must be read; `None` when the store is closed.
fn wait(shared: &Shared, interval: Duration) -> Option<HashSet<Key>> {
    let mut state = shared.state();
    if state.changed.is_empty() && !state.closed {
        state.rows.retain(|_, watchers| {
            watchers.retain(|watcher| watcher.receiver_count() > 0);
            !watchers.is_empty()
        });
        if state.rows.is_empty() {
            shared.wake.wait(&mut state);
        } else {
            shared.wake.wait_for(&mut state, interval);
        }
    }
    (!state.closed).then(|| std::mem::take(&mut state.changed))
}

fn tell(shared: &Shared, key: &Key, seen: Seen) {
    let mut state = shared.state();
    for watcher in state.rows.get(key).into_iter().flatten() {
        watcher.send_if_modified(|known| std::mem::replace(known, seen) != seen);
    }
    if seen == Seen::Gone {
        state.rows.remove(key);
    }
}

fn statuses(receiver: watch::Receiver<Seen>) -> StatusStream {
    futures::stream::unfold(receiver, |mut receiver| async move {
        loop {
            receiver.changed().await.ok()?;
            let seen = *receiver.borrow_and_update();
            match seen {
                Seen::NotYet => {}
                Seen::Gone => return None,
                Seen::Status(status) => return Some((status, receiver)),
            }
        }
    })
    .boxed()
}
