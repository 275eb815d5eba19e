//! What an agent is, once defined.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::stream_log::StreamLog;
use everturn_core::{Context, Error, Registry, Result};
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use crate::journal::Retention;
use crate::runs::Runs;
use crate::store::{Scope, SessionStore};
use crate::transform::{StateTransform, StreamTransform};
use crate::{
    AgentResult, AgentSession, Clock, Concurrency, SnapshotIds, SnapshotPolicy, Timeline, WorkerLoss,
};

/// An agent's function: runs the turns of one invocation and says what came of it.
pub(crate) type AgentFunction<S> =
    dyn Fn(AgentSession<S>) -> BoxFuture<'static, Result<AgentResult>> + Send + Sync;

pub(crate) type ScopeOf = Arc<dyn Fn(&Context) -> Scope + Send + Sync>;

/// Signs of life of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// How often a background run gives one.
    pub interval: Duration,
    /// After how long a silence the run is reported as expired, and may be taken over: the lease of its worker. It must
    /// be longer than the interval; twice that forgives one sign of life that was lost.
    pub expiry: Duration,
}

impl Heartbeat {
    /// # Errors
    /// `INVALID_ARGUMENT` if every run would be taken for dead.
    pub(crate) fn check(self) -> Result<()> {
        if self.interval.is_zero() || self.expiry <= self.interval {
            return Err(Error::invalid_argument(
                "a heartbeat needs an interval of some time and an expiry that is longer than it",
            ));
        }
        Ok(())
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            expiry: Duration::from_mins(1),
        }
    }
}

/// How long cancelled work may go on by itself before it is dropped, unless an agent says otherwise.
pub(crate) const CANCELLATION_GRACE: Duration = Duration::from_secs(5);

/// Everything an invocation needs to know about its agent.
pub(crate) struct Definition<S> {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) registry: Registry,
    pub(crate) function: Arc<AgentFunction<S>>,
    pub(crate) store: Option<Arc<dyn SessionStore>>,
    pub(crate) scope: Option<ScopeOf>,
    pub(crate) state_transform: Option<StateTransform>,
    pub(crate) stream_transform: Option<StreamTransform>,
    pub(crate) concurrency: Concurrency,
    pub(crate) snapshots: SnapshotPolicy,
    pub(crate) snapshot_ids: SnapshotIds,
    pub(crate) timeline: Timeline,
    /// Whether the last message of a snapshot names it.
    pub(crate) names_messages: bool,
    pub(crate) resume_past_failures: bool,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) worker_loss: WorkerLoss,
    /// Which of a caller's values the agent's background runs record.
    pub(crate) recorded_context: Vec<String>,
    pub(crate) cancellation_grace: Duration,
    pub(crate) clock: Clock,
    /// How long journals are kept; `None` if none are written.
    pub(crate) journals: Option<Arc<Retention>>,
    /// What the agent's prompt is rendered with where the conversation brings nothing of its own.
    pub(crate) prompt_input: Option<Arc<Value>>,
    /// The drivers of invocations under way; each ends with its connection, or with its background run.
    pub(crate) invocations: TaskTracker,
    /// Those of them that are background runs.
    pub(crate) runs: Runs,
    /// Where those who watch background runs read what these send.
    pub(crate) run_log: Arc<dyn StreamLog>,
}

impl<S> Definition<S> {
    /// Whose rows an invocation in this context may see: what the agent says, else what the caller brought.
    pub(crate) fn scope(&self, context: &Context) -> Scope {
        match &self.scope {
            Some(scope) => scope(context),
            None => Scope::brought_by(context).unwrap_or_default(),
        }
    }

    /// What a background run records of its caller.
    pub(crate) fn recorded_context(&self, context: &Context) -> Map<String, Value> {
        self.recorded_context
            .iter()
            .filter_map(|name| Some((name.clone(), context.value(name)?.clone())))
            .collect()
    }
}
