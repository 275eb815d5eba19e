//! Shared test support.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use everturn_core::{Error, Reason, Status};

/// The output of a future that must not hang. Under paused time a future that waits for nothing fails at
/// once.
#[track_caller]
pub(crate) fn within<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        let output = tokio::time::timeout(Duration::from_mins(1), future).await;
        output.unwrap_or_else(|_| panic!("hangs at {caller}"))
    }
}

/// Lets every other task of a single-threaded runtime run until all of them wait.
pub(crate) async fn idle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Counts from anywhere.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Tells whether what owns the other half was dropped.
#[derive(Clone, Default)]
pub(crate) struct Dropped(Arc<AtomicBool>);

impl Dropped {
    pub(crate) fn when_dropped(&self) -> SaysWhenDropped {
        SaysWhenDropped(self.clone())
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// The half that is owned by what is watched.
pub(crate) struct SaysWhenDropped(Dropped);

impl Drop for SaysWhenDropped {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}

/// Asserts the meaning of a failure, independent of its text.
#[track_caller]
pub(crate) fn assert_failed<T>(
    result: Result<T, Error>,
    status: Status,
    reason: impl Into<Option<Reason>>,
) -> Error {
    let Err(error) = result else {
        panic!("expected {status}, not success")
    };
    assert_eq!(
        (error.status(), error.reason()),
        (status, reason.into()),
        "{error:?}"
    );
    error
}
