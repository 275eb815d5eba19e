//! The watched rows of a store.

use std::collections::{HashMap, HashSet};

use everturn_agent::store::{Scope, StatusStream};
use everturn_agent::{SnapshotId, SnapshotStatus};
use futures::StreamExt;
use tokio::sync::watch;

/// The scope and the id of a row.
pub type Key = (Scope, SnapshotId);

/// The last status that was sent to the watchers of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    NotYet,
    Status(SnapshotStatus),
    Deleted,
}

/// The watched rows of a store, and those that must be read again.
///
/// One reader takes changed rows, reads their statuses and reports them, so a watcher never receives an older
/// status after a newer one.
#[derive(Debug, Default)]
pub struct Watched {
    rows: HashMap<Key, Vec<watch::Sender<Seen>>>,
    changed: HashSet<Key>,
}

impl Watched {
    /// Adds a watcher of a row, which must be read. Returns the row's statuses, the current one first. The
    /// stream ends when the row does not exist.
    pub fn add(&mut self, key: Key) -> StatusStream {
        let (sender, receiver) = watch::channel(Seen::NotYet);
        self.rows.entry(key.clone()).or_default().push(sender);
        self.changed.insert(key);
        statuses(receiver)
    }

    /// Marks those of the rows that are watched as changed. Returns whether there is one.
    pub fn mark_changed(&mut self, keys: impl IntoIterator<Item = Key>) -> bool {
        let before = self.changed.len();
        let watched = keys.into_iter().filter(|key| self.rows.contains_key(key));
        self.changed.extend(watched);
        self.changed.len() > before
    }

    /// Returns whether a row must be read.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns the rows that must be read, and marks them as read.
    pub fn take_changed(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// Returns all watched rows.
    pub fn keys(&self) -> Vec<Key> {
        self.rows.keys().cloned().collect()
    }

    /// Removes dropped watchers. Returns whether a watcher remains.
    pub fn remove_dropped(&mut self) -> bool {
        self.rows.retain(|_, watchers| {
            watchers.retain(|watcher| watcher.receiver_count() > 0);
            !watchers.is_empty()
        });
        !self.rows.is_empty()
    }

    /// Sends the status of a row to its watchers; `None` if the row does not exist.
    pub fn report(&mut self, key: &Key, status: Option<SnapshotStatus>) {
        let seen = status.map_or(Seen::Deleted, Seen::Status);
        for watcher in self.rows.get(key).into_iter().flatten() {
            watcher.send_if_modified(|known| std::mem::replace(known, seen) != seen);
        }
        if seen == Seen::Deleted {
            self.rows.remove(key);
        }
    }

    /// Ends all streams.
    pub fn clear(&mut self) {
        self.rows.clear();
    }
}

fn statuses(receiver: watch::Receiver<Seen>) -> StatusStream {
    futures::stream::unfold(receiver, |mut receiver| async move {
        loop {
            receiver.changed().await.ok()?;
            let seen = *receiver.borrow_and_update();
            match seen {
                Seen::NotYet => {}
                Seen::Deleted => return None,
                Seen::Status(status) => return Some((status, receiver)),
            }
        }
    })
    .boxed()
}
