//! The runs under way in this process, so that they can be stopped from outside.

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

/// The runs under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs(Arc<Tokens>);

/// A run that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    runs: Runs,
    thread: Thread,
    number: u64,
    stopped: CancellationToken,
}

impl Runs {
    /// Enters a run. Threads may have several at once, on their branches.
    pub(crate) fn enter(&self, thread: Thread) -> UnderWay {
        let stopped = CancellationToken::new();
        let mut tokens = self.0.lock();
        let runs = tokens.entry(thread.clone()).or_default();
        let number = runs.last().map_or(0, |(number, _)| number + 1);
        runs.push((number, stopped.clone()));
        drop(tokens);
        UnderWay {
            runs: self.clone(),
            thread,
            number,
            stopped,
        }
    }

    /// Stops the runs of a thread; returns whether there were any.
    pub(crate) fn stop(&self, thread: &Thread) -> bool {
        let tokens = self.0.lock();
        let runs = tokens.get(thread);
        for (_, token) in runs.into_iter().flatten() {
            token.cancel();
        }
        runs.is_some()
    }
}

impl UnderWay {
    /// Returns the token that is cancelled when the run is stopped.
    pub(crate) fn stopped(&self) -> &CancellationToken {
        &self.stopped
    }
}

impl Drop for UnderWay {
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
