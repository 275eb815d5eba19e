//! Processes that die, and a world outside that remembers what they did.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

/// Where a process dies: at the step of that number, and at every later one.
#[derive(Clone)]
pub(crate) struct Fuse {
    steps: Arc<AtomicUsize>,
    burns_at: usize,
    burnt: CancellationToken,
}

impl Default for Fuse {
    fn default() -> Self {
        Self::never()
    }
}

impl Fuse {
    pub(crate) fn burning_at(step: usize) -> Self {
        Self {
            steps: Arc::default(),
            burns_at: step,
            burnt: CancellationToken::new(),
        }
    }

    /// A process that lives.
    pub(crate) fn never() -> Self {
        Self::burning_at(usize::MAX)
    }

    /// How many steps were taken.
    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    /// Takes a step; the caller that takes the last one never returns.
    pub(crate) async fn step(&self) {
        if self.steps.fetch_add(1, Ordering::SeqCst) >= self.burns_at {
            self.die().await;
        }
    }

    pub(crate) async fn die(&self) {
        self.burnt.cancel();
        std::future::pending::<()>().await;
    }

    /// Runs a separate process until it is done or dies; `None` if it died.
    pub(crate) fn process<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.burnt.cancelled() => None,
                done = work => Some(done),
            }
        })
        // Every task of the process is dropped where it stands.
    }
}

/// The state outside the processes, which outlives them.
#[derive(Default)]
pub(crate) struct World {
    counts: Mutex<BTreeMap<String, usize>>,
    keys: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl World {
    pub(crate) fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn counted(&self, what: &str) -> usize {
        self.counts.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    pub(crate) fn saw_key(&self, what: &str, key: &str) {
        self.keys
            .lock()
            .unwrap()
            .entry(what.to_owned())
            .or_default()
            .insert(key.to_owned());
    }

    pub(crate) fn keys(&self, what: &str) -> usize {
        self.keys.lock().unwrap().get(what).map_or(0, BTreeSet::len)
    }
}
