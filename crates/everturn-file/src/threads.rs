//! The threads on which a store blocks: few, however many callers there are.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::Result;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many reads, and how many writes, may block a thread at the same time.
///
/// Devices reach their greatest speed with fewer. Reads and writes are apart, so that reads never wait for
/// writes. Writes under a scope's lock are apart from those that prepare for it: otherwise the holder of the
/// lock would wait for the many that wait for the lock.
const THREADS: usize = 64;

/// A bound on the threads that block, shared by all handles of a store. A wait for a lock blocks no thread.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    holders: Arc<Semaphore>,
}

impl Threads {
    /// Runs work that blocks and only reads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        run(&self.readers, work).await
    }

    /// Runs work that blocks and writes.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        run(&self.writers, work).await
    }

    /// Runs work that blocks and writes under the lock of a scope.
    pub(crate) async fn hold<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        run(&self.holders, work).await
    }

    /// Like [`Threads::write`], unless no thread is free for that long; then returns `None`.
    pub(crate) async fn write_within<T: Send + 'static>(
        &self,
        time: Duration,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Option<T>> {
        match tokio::time::timeout(time, Arc::clone(&self.writers).acquire_owned()).await {
            Ok(permit) => run_with(permit?, work).await.map(Some),
            Err(_) => Ok(None),
        }
    }
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(THREADS)),
            writers: Arc::new(Semaphore::new(THREADS)),
            holders: Arc::new(Semaphore::new(THREADS)),
        }
    }
}

async fn run<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    run_with(Arc::clone(permits).acquire_owned().await?, work).await
}

async fn run_with<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let work = move || {
        // Kept for as long as the thread is in use, also if the caller stops waiting.
        let _permit = permit;
        work()
    };
    tokio::task::spawn_blocking(work).await?
}
