//! Work under a scope's lock, by a deadline.
//!
//! A wait for the lock blocks no thread: the caller waits in the queue of this process, and the first in the
//! queue tries the lock at short intervals. A caller that still waits at its deadline fails, wherever in the
//! queue it is, so a process that is stopped while it holds the lock costs the others their saves of the
//! meantime, and nothing else.

use std::time::Duration;

use everturn_agent::store::Scope;
use everturn_core::{Error, Result};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::FileStore;
use crate::files::{Files, Lock};

/// The first and the longest interval at which the lock is tried.
const INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// The outcome of one attempt to run work under the lock.
enum Attempt<T, W> {
    Done(T),
    Busy(W),
}

impl FileStore {
    /// Runs blocking work that comes before the work under a scope's lock.
    ///
    /// # Errors
    /// The work's own; `UNAVAILABLE` if no thread is free until the deadline.
    pub(crate) async fn prepare<T: Send + 'static>(
        &self,
        scope: &Scope,
        asked: Instant,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let left = self.options.busy_timeout.saturating_sub(asked.elapsed());
        match self.threads.write_within(left, work).await? {
            Some(done) => Ok(done),
            None => Err(self.busy(&self.files(scope)?)),
        }
    }

    /// Runs blocking work under a scope's lock. The scope's folder must exist.
    ///
    /// # Errors
    /// The work's own; `UNAVAILABLE` if another process holds the lock until `asked` is longer ago than the
    /// store's `busy_timeout`.
    pub(crate) async fn under_lock<T: Send + 'static>(
        &self,
        scope: &Scope,
        asked: Instant,
        work: impl FnOnce(&Files, Lock) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let files = self.files(scope)?;
        let left = self.options.busy_timeout.saturating_sub(asked.elapsed());
        let queue = self.queues.of(&files.folder).lock_owned();
        let Ok(place) = tokio::time::timeout(left, queue).await else {
            return Err(self.busy(&files));
        };
        self.under_lock_from(place, scope, asked, work).await
    }

    /// Like [`FileStore::under_lock`], from a place in the queue of this process.
    pub(crate) async fn under_lock_from<T: Send + 'static>(
        &self,
        place: OwnedMutexGuard<()>,
        scope: &Scope,
        asked: Instant,
        work: impl FnOnce(&Files, Lock) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let files = self.files(scope)?;
        let mut waiting = (place, work);
        let [mut interval, longest] = INTERVALS;
        loop {
            let (own, (place, work)) = (files.clone(), waiting);
            let attempt = self.threads.hold(move || match own.lock_from(place)? {
                Ok(lock) => work(&own, lock).map(Attempt::Done),
                Err(place) => Ok(Attempt::Busy((place, work))),
            });
            waiting = match attempt.await? {
                Attempt::Done(result) => return Ok(result),
                Attempt::Busy(waiting) => waiting,
            };
            if asked.elapsed() >= self.options.busy_timeout {
                return Err(self.busy(&files));
            }
            tokio::time::sleep(interval).await;
            interval = (interval * 2).min(longest);
        }
    }

    pub(crate) fn busy(&self, files: &Files) -> Error {
        Error::unavailable(format!(
            "the session folder '{}' is busy: other saves or another process held the lock of scope '{}'; retry, \
             end that process, or allow a longer busy_timeout",
            self.root().display(),
            files.scope.as_str(),
        ))
    }
}
