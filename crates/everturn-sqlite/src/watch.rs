//! Watching the status of rows.
//!
//! One thread reads statuses and reports them, so a watcher never receives an older status after a newer one.
//! The thread reads a row when a watcher arrives and when this process has changed the row. While there are
//! watchers, it also polls SQLite's `data_version` at short intervals and reads the watched rows again when
//! another process has committed. Without watchers it sleeps. It ends with its store.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use everturn_agent::store::StatusStream;
use everturn_sql::{Key, Watched};
use futures::StreamExt;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::connection::{data_version, open_reader};
use crate::fault::Outcome;
use crate::options::SqliteStoreOptions;
use crate::read;

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
    watched: Watched,
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
        if state.watched.mark_changed(changed) {
            self.shared.wake.notify_one();
        }
    }

    /// Returns the statuses of a row, the current one first. The stream ends when the row does not exist.
    pub(crate) fn watch(&self, key: Key) -> StatusStream {
        let mut state = self.shared.state();
        if state.closed {
            return futures::stream::empty().boxed();
        }
        let statuses = state.watched.add(key);
        if !state.running {
            state.running = self.start();
        }
        self.shared.wake.notify_one();
        drop(state);
        statuses
    }

    /// Whether the thread runs. If it could not be started, the next watcher tries again.
    fn start(&self) -> bool {
        let (shared, options) = (Arc::clone(&self.shared), self.options.clone());
        let thread = std::thread::Builder::new()
            .name("everturn-watch".to_owned())
            .spawn(move || {
                if let Err(fault) = run(&shared, &options) {
                    let error = fault.into_error(&options.path);
                    tracing::warn!(%error, "cannot watch session rows; their watches end");
                }
                let mut state = shared.state();
                state.running = false;
                state.watched.clear();
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
        let rows = if now == version {
            changed
        } else {
            shared.state().watched.keys()
        };
        version = now;
        for key in rows {
            match read::status(&connection, key.0.as_str(), key.1.as_str()) {
                Ok(status) => shared.state().watched.report(&key, status),
                Err(fault) if fault.is_busy() => {
                    shared.state().watched.mark_changed([key]);
                }
                Err(fault) => return Err(fault),
            }
        }
    }
    Ok(())
}

/// Waits until rows must be read; `None` when the store is closed.
fn wait(shared: &Shared, interval: Duration) -> Option<Vec<Key>> {
    let mut state = shared.state();
    if !state.watched.has_changed() && !state.closed {
        if state.watched.remove_dropped() {
            shared.wake.wait_for(&mut state, interval);
        } else {
            shared.wake.wait(&mut state);
        }
    }
    (!state.closed).then(|| state.watched.take_changed())
}
