//! Watching the status of rows.
//!
//! One task reads statuses and reports them, so a watcher never receives an older status after a newer one.
//! It reads a row when a watcher arrives and when this process has changed the row. Correctness rests on
//! polling: it also reads all watched rows at an interval. A notification from another process only makes it
//! read immediately. Without watchers the task ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use everturn_agent::store::{Scope, StatusStream};
use everturn_agent::{SnapshotId, SnapshotStatus};
use everturn_sql::{Key, Watched, from_word};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::connection::Database;
use crate::fault::Outcome;
use crate::listen::{Announcer, Channel};
use crate::position::tenant;
use crate::row::text;
use crate::statement::Statement;

/// How many times slower polling is while notifications arrive.
const SLOWER: u32 = 20;

/// The delay after a failed poll. Watching continues however long the database cannot be read.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// The watched rows.
pub(crate) struct Watchers {
    db: Arc<Database>,
    shared: Arc<Shared>,
    announcer: Arc<Announcer>,
    listening: Arc<AtomicBool>,
    poll: Duration,
    /// Ends the tasks when the store is dropped.
    stop: CancellationToken,
    _guard: DropGuard,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    watched: Watched,
    task: Option<tokio::task::JoinHandle<()>>,
    /// The turns that wait for a lock, by the tag of the lock.
    waiting: Vec<(i64, Weak<Notify>)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is a single insertion or removal.
        self.state.lock()
    }

    fn wake_freed(&self, tag: i64) {
        let state = self.state();
        let named = state.waiting.iter().filter(|(other, _)| *other == tag);
        named
            .filter_map(|(_, waiting)| waiting.upgrade())
            .for_each(|waiting| waiting.notify_one());
    }

    /// Marks the rows of a notification's tag as changed.
    fn changed(&self, tag: i64) {
        self.wake_freed(tag);
        let mut state = self.state();
        let mut named = state.watched.keys();
        named.retain(|key| crate::listen::tag(key) == tag);
        if state.watched.mark_changed(named) {
            self.wake.notify_one();
        }
    }
}

impl Watchers {
    /// Starts a connection that listens for changes of other processes, and a task that announces changes to
    /// them.
    pub(crate) fn start(db: &Arc<Database>, poll: Duration, channel: Channel) -> Self {
        let stop = CancellationToken::new();
        let watchers = Self {
            db: Arc::clone(db),
            shared: Arc::default(),
            announcer: Arc::default(),
            listening: Arc::default(),
            poll,
            stop: stop.clone(),
            _guard: stop.clone().drop_guard(),
        };
        let (announcer, weak) = (Arc::clone(&watchers.announcer), Arc::downgrade(db));
        let (shared, listening) = (Arc::clone(&watchers.shared), Arc::clone(&watchers.listening));
        tokio::spawn(async move {
            let changed = |tag| shared.changed(tag);
            let both = async {
                tokio::join!(
                    channel.listen(&weak, &listening, changed),
                    announcer.run(&weak, &channel.name)
                )
            };
            stop.run_until_cancelled(Box::pin(both)).await;
        });
        watchers
    }

    /// Returns whether notifications arrive.
    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Returns a token that is cancelled when the store is dropped.
    pub(crate) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Has the task read these rows again.
    pub(crate) fn notice(&self, changed: impl IntoIterator<Item = Key>) {
        if self.shared.state().watched.mark_changed(changed) {
            self.shared.wake.notify_one();
        }
    }

    /// Waits until a lock that this key stands for may have become free.
    pub(crate) async fn freed(&self, key: &Key) {
        let waiting = Arc::new(Notify::new());
        let entry = (crate::listen::tag(key), Arc::downgrade(&waiting));
        {
            let mut state = self.shared.state();
            state.waiting.retain(|(_, waiting)| waiting.strong_count() > 0);
            state.waiting.push(entry);
        }
        waiting.notified().await;
    }

    /// Wakes the turns of this process that wait for a lock.
    pub(crate) fn wake_freed(&self, key: &Key) {
        self.shared.wake_freed(crate::listen::tag(key));
    }

    /// Notifies other processes of a changed status, soon and together with others.
    pub(crate) fn announce(&self, key: &Key) {
        self.announcer.announce(key);
    }

    /// Returns the statuses of a row, the current one first. The stream ends when the row does not exist.
    pub(crate) fn watch(&self, key: Key) -> StatusStream {
        let mut state = self.shared.state();
        let statuses = state.watched.add(key);
        // The task ends with the runtime that it was started on, which may be another than this caller's.
        if state
            .task
            .as_ref()
            .is_none_or(tokio::task::JoinHandle::is_finished)
        {
            let (db, shared) = (Arc::downgrade(&self.db), Arc::clone(&self.shared));
            let (poll, listening, stop) = (self.poll, Arc::clone(&self.listening), self.stop.clone());
            state.task = Some(tokio::spawn(async move {
                stop.run_until_cancelled(run(&db, &shared, &listening, poll))
                    .await;
            }));
        }
        drop(state);
        self.shared.wake.notify_one();
        statuses
    }
}

/// Reads rows for their watchers, while there are any.
async fn run(db: &Weak<Database>, shared: &Shared, listening: &AtomicBool, poll: Duration) {
    let mut last = tokio::time::Instant::now();
    loop {
        let is_prompt = listening.load(Ordering::Relaxed);
        let interval = if is_prompt { poll * SLOWER } else { poll };
        tokio::select! {
            () = shared.wake.notified() => {}
            () = tokio::time::sleep_until(last + interval) => {}
        }
        let rows: Vec<Key> = {
            let mut state = shared.state();
            let changed = state.watched.take_changed();
            if !state.watched.remove_dropped() {
                state.task = None;
                return;
            }
            if last.elapsed() >= interval {
                last = tokio::time::Instant::now();
                state.watched.keys()
            } else {
                changed
            }
        };
        let Some(db) = db.upgrade() else {
            return;
        };
        match statuses_of(&db, &rows).await {
            Ok(found) => {
                let mut state = shared.state();
                for key in rows {
                    state.watched.report(&key, found.get(&key).copied());
                }
            }
            Err(fault) => {
                let error = fault.into_error(&db.place);
                tracing::warn!(%error, "watched snapshots cannot be read; they are read again soon");
                drop(db);
                shared.state().watched.mark_changed(rows);
                shared.wake.notify_one();
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}

/// Reads the statuses of rows; those that do not exist are left out.
async fn statuses_of(db: &Database, rows: &[Key]) -> Outcome<HashMap<Key, SnapshotStatus>> {
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let tenants: Vec<i32> = rows.iter().map(|(scope, _)| tenant(scope)).collect();
    let scopes: Vec<Vec<u8>> = rows
        .iter()
        .map(|(scope, _)| scope.as_str().as_bytes().to_vec())
        .collect();
    let ids: Vec<Vec<u8>> = rows
        .iter()
        .map(|(_, id)| id.as_str().as_bytes().to_vec())
        .collect();
    let sql = "SELECT s.scope, s.id, s.status FROM unnest($1, $2, $3) AS watched (tenant, scope, id) \
        JOIN @snapshot s ON s.tenant = watched.tenant AND s.scope = watched.scope AND s.id = watched.id";
    let statement = Statement::new(sql).with((tenants, scopes, ids));
    let mut found = HashMap::new();
    for row in db.read(&statement).await? {
        let key = (Scope::new(text(&row, 0)?), SnapshotId::from(text(&row, 1)?));
        found.insert(key, from_word(crate::statement::column(&row, 2)?)?);
    }
    Ok(found)
}
