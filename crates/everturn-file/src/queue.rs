//! Where the writers of one process wait for each other, before one of them waits for other processes.
//!
//! A lock file excludes threads as well, but all that wait for it wake up whenever it is released, and who gets it is left
//! to chance.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::layout::Folder;

/// One queue per folder, shared by all handles of a store. First come, first served; forgotten when nobody is in it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Queues(Arc<Mutex<HashMap<Folder, Weak<Turn<()>>>>>);

impl Queues {
    /// Waits, with its thread, until it is this writer's turn, which is over when the guard is dropped.
    pub(crate) fn turn(&self, folder: &Folder) -> OwnedMutexGuard<()> {
        self.of(folder).blocking_lock_owned()
    }

    fn of(&self, folder: &Folder) -> Arc<Turn<()>> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(folder).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(Turn::new(()));
        queues.insert(folder.clone(), Arc::downgrade(&queue));
        queue
    }
}
