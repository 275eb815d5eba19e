//! Agents: defined once, invoked by many.

mod abort;
mod actions;
mod builder;
mod definition;
mod reading;

use std::fmt;
use std::sync::Arc;

use everturn_core::{Context, Registry, Result};
use serde_json::Value;

pub use self::abort::Abort;
pub use self::actions::{AbortAction, AgentAction, SnapshotAction};
pub use self::builder::{AgentBuilder, AgentKind, Custom, IntoStore, custom_agent};
pub(crate) use self::builder::{AgentOrigin, sealed};
pub use self::definition::Heartbeat;
pub(crate) use self::definition::{AgentFunction, Definition};
pub(crate) use self::reading::{PENDING_INPUTS, check_owner, exposure, not_found};
pub use self::reading::{SNAPSHOT_NOT_FOUND, STORE_NOT_CONFIGURED};
use crate::chat::ChatBuilder;
use crate::store::SessionStore;
use crate::{
    AgentConnection, AgentInit, AgentInput, AgentMetadata, AgentReply, AgentTask, CustomState,
    GetSnapshotRequest, SessionId, Snapshot, SnapshotId,
};

/// An agent whose custom state is an `S`. Cloning gives another handle to the same agent.
///
/// The state's type is part of the agent's, so that a state of another type does not compile:
///
/// ```compile_fail
/// # use everturn_agent::{Agent, AgentSession, custom_agent};
/// # use everturn_core::Registry;
/// let counter: Agent<u64> = custom_agent(&Registry::new(), "counter", |session: AgentSession<u64>| async move {
///     Ok(session.result())
/// })
/// .define()
/// .unwrap();
///
/// counter.chat().custom("not a number");
/// ```
pub struct Agent<S = Value> {
    definition: Arc<Definition<S>>,
    run: AgentAction,
    snapshot: Option<SnapshotAction>,
    abort: Option<AbortAction>,
}

impl<S: CustomState> Agent<S> {
    pub(crate) fn new(definition: Definition<S>) -> Self {
        let definition = Arc::new(definition);
        Self {
            run: actions::run_action(&definition),
            snapshot: actions::snapshot_action(&definition),
            abort: actions::abort_action(&definition),
            definition,
        }
    }

    /// Registers the agent's action and its companions under the agent's name.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is an agent of that name.
    pub fn register(&self, registry: &Registry) -> Result<()> {
        registry.register(Arc::new(self.run.clone()))?;
        if let Some(snapshot) = &self.snapshot {
            registry.register(Arc::new(snapshot.clone()))?;
        }
        if let Some(abort) = &self.abort {
            registry.register(Arc::new(abort.clone()))?;
        }
        Ok(())
    }

    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// What the agent is good for, if it was said.
    pub fn description(&self) -> Option<&str> {
        self.definition.description.as_deref()
    }

    /// Who keeps the state, whether background runs can be aborted, and the state's schema.
    pub fn metadata(&self) -> AgentMetadata {
        actions::metadata(&self.definition)
    }

    /// Where the agent keeps its conversations, raw; `None` if its clients keep them.
    pub fn store(&self) -> Option<&Arc<dyn SessionStore>> {
        self.definition.store.as_ref()
    }

    /// The registry in which the agent finds models, tools and prompts.
    pub fn registry(&self) -> &Registry {
        &self.definition.registry
    }

    /// The action behind the agent.
    pub fn action(&self) -> &AgentAction {
        &self.run
    }

    /// The companion that reads snapshots; only with a store.
    pub fn snapshot_action(&self) -> Option<&SnapshotAction> {
        self.snapshot.as_ref()
    }

    /// The companion that aborts background runs; only with a store whose rows can be watched.
    pub fn abort_action(&self) -> Option<&AbortAction> {
        self.abort.as_ref()
    }

    /// Runs one turn of a fresh conversation.
    ///
    /// # Errors
    /// What the turn failed with; [`AgentReply::of`] finds the reply of a failed turn in it.
    pub async fn run(&self, input: impl Into<AgentInput>) -> Result<AgentReply<S>> {
        self.chat().run(input).await
    }

    /// Runs one turn of a fresh conversation on a text.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub async fn run_text(&self, text: impl Into<String>) -> Result<AgentReply<S>> {
        self.run(text.into()).await
    }

    /// Opens an invocation in the current context: many turns over one connection.
    pub fn connect(&self, init: AgentInit) -> AgentConnection<S> {
        self.connect_in(init, &Context::current())
    }

    /// Opens an invocation in the given context.
    pub fn connect_in(&self, init: AgentInit, context: &Context) -> AgentConnection<S> {
        AgentConnection::new(self.run.connect_in(init, context))
    }

    /// Begins or resumes a conversation that goes on from turn to turn.
    pub fn chat(&self) -> ChatBuilder<S> {
        ChatBuilder::new(Arc::new(self.clone()))
    }

    /// A run in the background that was started before, by the id of its row.
    pub fn task(&self, id: impl Into<SnapshotId>) -> AgentTask<S> {
        AgentTask::new(Arc::new(self.clone()), Context::current(), id.into())
    }

    /// The snapshot of that id, as clients see it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none, `FAILED_PRECONDITION` without a store, `INVALID_ARGUMENT` for an empty id.
    pub async fn get_snapshot(&self, id: impl Into<SnapshotId>) -> Result<Snapshot> {
        let request = GetSnapshotRequest {
            snapshot_id: Some(id.into()),
            session_id: None,
        };
        self.find_snapshot(request).await
    }

    /// The latest snapshot of a session, as clients see it.
    ///
    /// # Errors
    /// As [`Agent::get_snapshot`].
    pub async fn latest_snapshot(&self, session: impl Into<SessionId>) -> Result<Snapshot> {
        let request = GetSnapshotRequest {
            snapshot_id: None,
            session_id: Some(session.into()),
        };
        self.find_snapshot(request).await
    }

    async fn find_snapshot(&self, request: GetSnapshotRequest) -> Result<Snapshot> {
        self.definition.require_store()?;
        self.definition.read_snapshot(request, &Context::current()).await
    }

    /// Asks the background run behind a pending row to stop; `None` if there is no such row.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` without a store, `INVALID_ARGUMENT` for an empty id.
    pub async fn abort(&self, id: impl Into<SnapshotId>) -> Result<Option<Abort>> {
        self.definition.abort_run(&id.into(), &Context::current()).await
    }

    /// How many invocations are under way, background runs included.
    pub fn invocations(&self) -> usize {
        self.definition.invocations.len()
    }

    /// Waits until no invocation is under way, background runs included.
    ///
    /// New ones may begin meanwhile and are waited for too: stop taking requests first.
    pub async fn idle(&self) {
        let invocations = &self.definition.invocations;
        invocations.close();
        invocations.wait().await;
        invocations.reopen();
    }

    pub(crate) fn definition(&self) -> &Arc<Definition<S>> {
        &self.definition
    }
}

impl<S> Clone for Agent<S> {
    fn clone(&self) -> Self {
        Self {
            definition: Arc::clone(&self.definition),
            run: self.run.clone(),
            snapshot: self.snapshot.clone(),
            abort: self.abort.clone(),
        }
    }
}

impl<S> fmt::Debug for Agent<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("name", &self.definition.name)
            .finish_non_exhaustive()
    }
}
