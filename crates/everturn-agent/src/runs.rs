//! Background runs: those in progress in this process, the streams of their chunks, and the logs that keep
//! them.

pub(crate) mod run_stream;

use std::collections::HashSet;
use std::sync::Arc;

use everturn_core::Registry;
use everturn_core::stream_log::StreamLog;
use parking_lot::{Mutex, MutexGuard};

pub use self::run_stream::RunChunks;
use crate::SnapshotId;
use crate::store::Scope;
use crate::weak_list::WeakList;

/// Adds a log that keeps streams of a registry's agents, including agents defined later. Sessions deleted
/// from an archive are erased from the log too. A server does this for its log. The log is not kept alive.
pub fn erase_streams_in(registry: &Registry, log: &Arc<dyn StreamLog>) {
    stream_logs(registry).add(log);
}

/// Returns the logs that hold streams of a registry's agents.
pub(crate) fn stream_logs(registry: &Registry) -> WeakList<dyn StreamLog> {
    WeakList::of(registry, "everturn/streamLogs")
}

type Key = (Scope, SnapshotId);

/// The runs of one agent. Cloning gives another handle to the same table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<HashSet<Key>>>);

/// An entry in the table of runs, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct RunEntry {
    runs: Runs,
    key: Key,
}

impl Runs {
    fn table(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.0.lock()
    }

    /// Enters a run into the table.
    pub(crate) fn enter(&self, scope: Scope, id: SnapshotId) -> RunEntry {
        let key = (scope, id);
        self.table().insert(key.clone());
        RunEntry {
            runs: self.clone(),
            key,
        }
    }

    /// Returns whether a run is in progress in this process.
    pub(crate) fn contains(&self, scope: &Scope, id: &SnapshotId) -> bool {
        self.table().contains(&(scope.clone(), id.clone()))
    }
}

impl Drop for RunEntry {
    fn drop(&mut self) {
        self.runs.table().remove(&self.key);
    }
}
