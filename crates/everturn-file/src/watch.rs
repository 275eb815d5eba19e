//! Watching the status of a row: changes made in this process are delivered at once, others by polling.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use everturn_agent::store::StatusStream;
use everturn_agent::{SnapshotId, SnapshotStatus};
use everturn_core::Result;
use futures::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::files::Files;
use crate::layout::Folder;

type Key = (Folder, SnapshotId);

/// The watched rows. A row is removed when its last watcher is dropped.
#[derive(Debug, Default, Clone)]
pub(crate) struct Watchers(Arc<Mutex<HashMap<Key, Weak<Watched>>>>);

/// One watched row, and the task that polls its file while there are watchers.
#[derive(Debug)]
struct Watched {
    status: watch::Sender<Option<SnapshotStatus>>,
    /// Aborted when this is dropped.
    poller: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Watchers {
    fn watched(&self) -> MutexGuard<'_, HashMap<Key, Weak<Watched>>> {
        self.0.lock()
    }

    /// Tells the watchers of a row its new status; `None` if the row was deleted.
    pub(crate) fn report(&self, folder: &Folder, id: &SnapshotId, status: Option<SnapshotStatus>) {
        let watched = self
            .watched()
            .get(&(folder.clone(), id.clone()))
            .and_then(Weak::upgrade);
        if let Some(watched) = watched {
            watched.set(status);
        }
    }

    /// Returns the statuses of a row, the current one first.
    pub(crate) fn watch(&self, files: Files, id: SnapshotId, poll: Option<Duration>) -> StatusStream {
        let watchers = self.clone();
        futures::stream::once(async move {
            let (watched, receiver) = watchers.join(&files, &id, poll);
            // Registered first, read second: a change in between is reported twice rather than missed.
            match current(files, id).await {
                Ok(status) => watched.set(status),
                Err(_) => watched.set(None),
            }
            statuses(watched, receiver)
        })
        .flatten()
        .boxed()
    }

    fn join(
        &self,
        files: &Files,
        id: &SnapshotId,
        poll: Option<Duration>,
    ) -> (Arc<Watched>, watch::Receiver<Option<SnapshotStatus>>) {
        let mut all = self.watched();
        all.retain(|_, watched| watched.strong_count() > 0);
        let key = (files.folder.clone(), id.clone());
        let watched = all.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let watched = Arc::new(Watched {
                status: watch::Sender::new(None),
                poller: Mutex::new(None),
            });
            if let Some(interval) = poll {
                let task = poll_file(Arc::downgrade(&watched), files.clone(), id.clone(), interval);
                let handle = AbortOnDropHandle::new(tokio::spawn(task));
                *watched.poller.lock() = Some(handle);
            }
            all.insert(key, Arc::downgrade(&watched));
            watched
        });
        let receiver = watched.status.subscribe();
        (watched, receiver)
    }
}

impl Watched {
    fn set(&self, status: Option<SnapshotStatus>) {
        self.status
            .send_if_modified(|known| std::mem::replace(known, status) != status);
    }
}

async fn poll_file(watched: Weak<Watched>, files: Files, id: SnapshotId, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let status = current(files.clone(), id.clone()).await;
        let Some(watched) = watched.upgrade() else {
            return;
        };
        // A file that cannot be read now is read again at the next poll.
        if let Ok(status) = status {
            watched.set(status);
        }
    }
}

async fn current(files: Files, id: SnapshotId) -> Result<Option<SnapshotStatus>> {
    let threads = files.threads.clone();
    let read = move || Ok(files.header(&id)?.map(|row| row.status));
    threads.read(read).await
}

/// Returns the statuses as they change. The stream ends when the row does not exist.
fn statuses(watched: Arc<Watched>, mut receiver: watch::Receiver<Option<SnapshotStatus>>) -> StatusStream {
    let first = *receiver.borrow_and_update();
    let later = futures::stream::unfold((watched, receiver), |(watched, mut receiver)| async move {
        receiver.changed().await.ok()?;
        let status = *receiver.borrow_and_update();
        Some((status, (watched, receiver)))
    });
    futures::stream::once(std::future::ready(first))
        .chain(later)
        .take_while(|status| std::future::ready(status.is_some()))
        .filter_map(std::future::ready)
        .boxed()
}
