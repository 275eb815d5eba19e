//! The end of a server, in stages.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What happens to calls that are still under way when a server has waited long enough for them.
///
/// First new connections are refused and readiness is withdrawn, while calls under way may end by themselves within
/// the grace period. Those that do not are handed on or cancelled, and told so; then the server returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// How long calls under way may take to end by themselves.
    pub period: Duration,
    /// What happens to them then.
    pub then: AfterGrace,
}

/// What happens to calls that outlast the grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterGrace {
    /// Turns of agents whose store can carry background work are detached: the client is given the pending snapshot, and
    /// the run is in the store for another process to go on with. Everything else is cancelled.
    Detach,
    /// Everything is cancelled.
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

/// Ends a server from elsewhere. Cloning gives another handle to the same server.
#[derive(Debug, Clone, Default)]
pub struct ServerHandle(Arc<Stages>);

#[derive(Debug, Default)]
struct Stages {
    draining: CancellationToken,
    handing_off: CancellationToken,
    cancelling: CancellationToken,
    /// Connections, and calls that outlive theirs.
    tasks: TaskTracker,
}

impl ServerHandle {
    /// Begins the end: the server takes no more connections, says that it is not ready, lets calls under way end as its
    /// [`Grace`] has it, and returns.
    pub fn shut_down(&self) {
        self.0.draining.cancel();
    }

    /// Whether the end has begun.
    pub fn is_shutting_down(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// Cancelled when the end begins.
    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// Cancelled when calls that can be detached must be.
    pub(crate) fn handing_off(&self) -> &CancellationToken {
        &self.0.handing_off
    }

    /// What the end waits for.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// Cancelled when no call may go on.
    pub(crate) fn cancelling(&self) -> &CancellationToken {
        &self.0.cancelling
    }
}
