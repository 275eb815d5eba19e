//! What an agent is, once defined.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Context, Registry, Result};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::task::TaskTracker;

use crate::journal::Retention;
use crate::store::{Scope, SessionStore};
use crate::transform::{StateTransform, StreamTransform};
use crate::{AgentResult, AgentSession, Clock, Concurrency, SnapshotPolicy};

/// An agent's function: runs the turns of one invocation and says what came of it.
pub(crate) type AgentFunction<S> =
    dyn Fn(AgentSession<S>) -> BoxFuture<'static, Result<AgentResult>> + Send + Sync;

pub(crate) type ScopeOf = Arc<dyn Fn(&Context) -> Scope + Send + Sync>;

/// Signs of life of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// How often a background run gives one.
    pub interval: Duration,
    /// After how long a silence the run is reported as expired.
    pub expiry: Duration,
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
    pub(crate) resume_past_failures: bool,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) cancellation_grace: Duration,
    pub(crate) clock: Clock,
    /// How long journals are kept; `None` if none are written.
    pub(crate) journals: Option<Arc<Retention>>,
    /// What the agent's prompt is rendered with where the conversation brings nothing of its own.
    pub(crate) prompt_input: Option<Arc<Value>>,
    /// The drivers of invocations under way; each ends with its connection, or with its background run.
    pub(crate) invocations: TaskTracker,
}

impl<S> Definition<S> {
    /// Whose rows an invocation in this context may see.
    pub(crate) fn scope(&self, context: &Context) -> Scope {
        self.scope
            .as_ref()
            .map_or_else(Scope::default, |scope| scope(context))
    }
}
