//! The active runs of this process, which clients can stop.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::store::Scope;
use everturn_core::Context;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A thread of one caller and one agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Thread {
    scope: String,
    agent: String,
    id: String,
}

impl Thread {
    pub(crate) fn of(agent: &str, thread: &str, context: &Context) -> Self {
        let scope = context.extension::<Scope>();
        Self {
            scope: scope.map(|scope| scope.as_str().to_owned()).unwrap_or_default(),
            agent: agent.to_owned(),
            id: thread.to_owned(),
        }
    }
}

type Tokens = Mutex<HashMap<Thread, Vec<(u64, CancellationToken)>>>;

/// The active runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActiveRuns(Arc<Tokens>);

/// A run that is active until this value is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRun {
    runs: ActiveRuns,
    thread: Thread,
    number: u64,
    stopped: CancellationToken,
}

impl ActiveRuns {
    /// Adds a run. A thread may have several at once, on its branches.
    pub(crate) fn enter(&self, thread: Thread) -> ActiveRun {
        let stopped = CancellationToken::new();
        let mut tokens = self.0.lock();
        let runs = tokens.entry(thread.clone()).or_default();
        let number = runs.last().map_or(0, |(number, _)| number + 1);
        runs.push((number, stopped.clone()));
        drop(tokens);
        ActiveRun {
            runs: self.clone(),
            thread,
            number,
            stopped,
        }
    }

    /// Stops the runs of a thread. Returns whether there were any.
    pub(crate) fn stop(&self, thread: &Thread) -> bool {
        let tokens = self.0.lock();
        let runs = tokens.get(thread);
        for (_, token) in runs.into_iter().flatten() {
            token.cancel();
        }
        runs.is_some()
    }
}

impl ActiveRun {
    /// Returns the token that is cancelled when the run is stopped.
    pub(crate) fn stopped(&self) -> &CancellationToken {
        &self.stopped
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        let mut tokens = self.runs.0.lock();
        if let Some(runs) = tokens.get_mut(&self.thread) {
            runs.retain(|(number, _)| *number != self.number);
            if runs.is_empty() {
                tokens.remove(&self.thread);
            }
        }
    }
}
