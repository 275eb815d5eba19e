//! Shutting a server down, in stages.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What happens to running calls when a server shuts down.
///
/// First the server refuses new connections and reports that it is not ready, while running calls may end by
/// themselves within the grace period, with or without a reader. The other calls are then detached or
/// cancelled, and their clients receive the outcome. Requests that have not arrived in full are rejected.
/// Then the server returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// How long running calls may take to end by themselves.
    pub period: Duration,
    /// What happens to the calls that have not ended by then.
    pub then: AfterGrace,
}

/// What happens to calls that outlast the grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterGrace {
    /// Turns of agents whose store supports background runs are detached: the client gets the pending
    /// snapshot, and another process can take the run over. All other calls are cancelled.
    Detach,
    /// All calls are cancelled.
    Cancel,
}

impl Default for Grace {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(10),
            then: AfterGrace::Detach,
        }
    }
}

/// Shuts a server down. A clone is another handle to the same server.
#[derive(Debug, Clone, Default)]
pub struct ServerHandle(Arc<Stages>);

#[derive(Debug, Default)]
struct Stages {
    draining: CancellationToken,
    grace_over: CancellationToken,
    handing_off: CancellationToken,
    cancelling: CancellationToken,
    /// Connections, and calls that outlive their connections.
    tasks: TaskTracker,
}

impl ServerHandle {
    /// Starts the shutdown: the server accepts no more connections, reports that it is not ready, lets
    /// running calls end as its [`Grace`] says, and returns.
    pub fn shut_down(&self) {
        self.0.draining.cancel();
    }

    /// Returns whether the shutdown has started.
    pub fn is_shutting_down(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// Returns the token that is cancelled when the shutdown starts.
    pub fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// Returns the token that is cancelled when the grace period has ended: the shutdown does not wait for
    /// requests that have not arrived by then, nor for calls that cannot be detached.
    pub(crate) fn grace_over(&self) -> &CancellationToken {
        &self.0.grace_over
    }

    /// Returns the token that is cancelled when calls must be detached.
    pub fn handing_off(&self) -> &CancellationToken {
        &self.0.handing_off
    }

    /// Returns the tasks that the shutdown waits for.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// Returns the token that is cancelled when no call may continue.
    pub(crate) fn cancelling(&self) -> &CancellationToken {
        &self.0.cancelling
    }
}
