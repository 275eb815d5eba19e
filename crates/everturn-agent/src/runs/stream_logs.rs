//! The stream logs that hold text of an application's agents, which is erased with their sessions.

use std::sync::{Arc, Weak};

use everturn_core::Registry;
use everturn_core::stream_log::StreamLog;
use parking_lot::Mutex;

/// Adds a log that keeps streams of a registry's agents, including agents defined later. Sessions deleted
/// from an archive are erased from the log too. A server does this for its log. The log is not kept alive.
pub fn erase_streams_in(registry: &Registry, log: &Arc<dyn StreamLog>) {
    StreamLogs::of(registry).add(Arc::downgrade(log));
}

/// The logs of a registry. A clone shares them.
#[derive(Clone, Default)]
pub(crate) struct StreamLogs(Arc<Mutex<Vec<Weak<dyn StreamLog>>>>);

impl StreamLogs {
    /// Returns the logs of a registry, in which they are a value.
    pub(crate) fn of(registry: &Registry) -> Self {
        const KEY: &str = "everturn/streamLogs";
        // One at a time: two that find none must not make two.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock();
        if let Some(logs) = registry.value::<Self>(KEY) {
            return Self::clone(&logs);
        }
        let logs = Self::default();
        registry.set_value(KEY, logs.clone());
        logs
    }

    fn add(&self, log: Weak<dyn StreamLog>) {
        let mut logs = self.0.lock();
        logs.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&log));
        logs.push(log);
    }

    pub(crate) fn all(&self) -> Vec<Arc<dyn StreamLog>> {
        let logs = self.0.lock();
        logs.iter().filter_map(Weak::upgrade).collect()
    }
}

everturn_core::opaque_debug!(StreamLogs);
