//! The files of one scope and the lock on them. Everything here blocks.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use everturn_agent::store::Scope;
use tokio::sync::{Mutex as Queue, OwnedMutexGuard};

use crate::cache::Cache;
use crate::disk::Disk;
use crate::layout::Folder;
use crate::row::Header;

/// The files of one scope.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
    pub(crate) scope: Scope,
    pub(crate) folder: Folder,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) max_chain: Option<usize>,
    pub(crate) headers: Cache<Header>,
    pub(crate) queues: Queues,
}

impl Files {
    /// Waits for the scope's lock, which excludes the writers of all processes.
    pub(crate) fn lock(&self) -> io::Result<Lock> {
        let place = self.queues.of(&self.folder).blocking_lock_owned();
        Ok(Lock {
            _file: self.disk.lock(&self.folder.lock())?,
            _place: place,
        })
    }
}

/// A scope's lock, held until it is dropped.
pub(crate) struct Lock {
    _file: Box<dyn Send>,
    // Dropped last: the next writer in the queue finds the file unlocked.
    _place: OwnedMutexGuard<()>,
}

/// One queue per folder, in which the writers of this process wait for each other before one of them waits for other
/// processes. Shared by all handles of a store.
///
/// The lock file excludes threads too, but releasing it wakes all waiting threads and lets chance decide between them. A
/// queue is first come, first served.
#[derive(Debug, Default, Clone)]
pub(crate) struct Queues(Arc<Mutex<HashMap<Folder, Weak<Queue<()>>>>>);

impl Queues {
    fn of(&self, folder: &Folder) -> Arc<Queue<()>> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(folder).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(Queue::new(()));
        queues.insert(folder.clone(), Arc::downgrade(&queue));
        queue
    }
}
