//! The files of one scope and the lock on them. Everything here blocks.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use everturn_agent::store::Scope;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Queue, OwnedMutexGuard};

use crate::cache::Cache;
use crate::disk::Disk;
use crate::layout::Folder;
use crate::row::Header;
use crate::threads::Threads;

/// The files of one scope.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
    pub(crate) scope: Scope,
    pub(crate) folder: Folder,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) headers: Cache<Header>,
    pub(crate) queues: Queues,
    pub(crate) threads: Threads,
}

impl Files {
    /// Takes the scope's lock if it is neither held nor waited for.
    pub(crate) fn lock_if_free(&self) -> io::Result<Option<Lock>> {
        match self.queues.of(&self.folder).try_lock_owned() {
            Ok(place) => Ok(self.lock_from(place)?.ok()),
            Err(_) => Ok(None),
        }
    }

    /// Takes the scope's lock, which excludes the writers of all processes, unless another process holds it.
    /// The place in the queue of this process is then given back.
    pub(crate) fn lock_from(
        &self,
        place: OwnedMutexGuard<()>,
    ) -> io::Result<std::result::Result<Lock, OwnedMutexGuard<()>>> {
        Ok(match self.disk.try_lock(&self.folder.lock())? {
            Some(file) => Ok(Lock { _file: file, place }),
            None => Err(place),
        })
    }
}

/// A scope's lock, held until it is dropped.
pub(crate) struct Lock {
    _file: Box<dyn Send>,
    // Dropped last: the next writer in the queue finds the file unlocked.
    place: OwnedMutexGuard<()>,
}

impl Lock {
    /// Lets other processes have the lock, and keeps the place in the queue of this process.
    pub(crate) fn release(self) -> OwnedMutexGuard<()> {
        self.place
    }
}

/// One queue per folder, in which the writers of this process wait for each other before one of them waits
/// for other processes. Shared by all handles of a store.
///
/// The lock file excludes threads too, but lets chance decide between those that wait. A queue serves them in
/// the order of their arrival.
#[derive(Debug, Default, Clone)]
pub(crate) struct Queues(Arc<Mutex<HashMap<Folder, Weak<Queue<()>>>>>);

impl Queues {
    pub(crate) fn of(&self, folder: &Folder) -> Arc<Queue<()>> {
        let mut queues = self.0.lock();
        if let Some(queue) = queues.get(folder).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(Queue::new(()));
        queues.insert(folder.clone(), Arc::downgrade(&queue));
        queue
    }
}
