//! Agents: defined once, invoked by many callers.

mod actions;
mod archive_actions;
mod background_runs;
mod builder;
mod middleware;
mod new_sessions;
mod prompt_agent;
mod snapshot_reads;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Connection, Context, DynAction, Emitter, Inputs, Registry, Result};
use futures::future::BoxFuture;
use futures::stream;
use serde_json::Value;

pub use self::actions::{AbortAction, AgentAction, SessionAction, SnapshotAction, SnapshotsAction};
pub use self::background_runs::{WatchAction, WatchRequest};
pub use self::builder::{AgentBuilder, AgentKind, Custom, custom_agent, session_flow};
pub(crate) use self::builder::{AgentOrigin, AgentProgram, sealed};
pub use self::middleware::{
    AgentRef, ArtifactStrategy, Artifacts, Delegation, check_delegates, internal_agents,
    register_agent_middleware,
};
pub use self::prompt_agent::{InlinePrompt, NamedPrompt, agent, prompt_agent};
use crate::archive::{Archive, Tenants};
use crate::chat::ChatBuilder;
use crate::invocation::{self, Definition, RegistryGuard};
use crate::recovery::{self, Recovery};
use crate::runs::run_stream::RunChunks;
use crate::storage::session_state::AgentTypes;
use crate::store::{SessionStore, StatusStream};
use crate::{
    Abort, AgentConnection, AgentInit, AgentInput, AgentMetadata, AgentOutput, AgentReply, AgentStreamChunk,
    AgentTask, AgentTransport, ChatTurn, CustomState, GetSnapshotRequest, SessionId, Snapshot, SnapshotId,
    StateManagement,
};

/// An agent with custom state `S`, status `T`, and a function that returns an `O` in addition to its answer.
/// Cloning gives another handle to the same agent.
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
pub struct Agent<S = Value, T = Value, O = Value> {
    parts: Arc<AgentParts>,
    types: AgentTypes<S, T, O>,
}

/// An agent's definition, its registry and its actions, which all handles share.
struct AgentParts {
    definition: Arc<Definition>,
    /// Kept by the handles of the agent and by its invocations; its actions do not keep it.
    registry: Registry,
    run: AgentAction,
    snapshot: Option<SnapshotAction>,
    snapshots: Option<SnapshotsAction>,
    session: Option<SessionAction>,
    abort: Option<AbortAction>,
    watch: Option<WatchAction>,
    archive: Vec<Arc<dyn DynAction>>,
}

impl<S: CustomState, T, O> Agent<S, T, O> {
    pub(crate) fn new(definition: Definition, registry: Registry) -> Self {
        let definition = Arc::new(definition);
        let is_stored = definition.store.is_some();
        // Without notifications, agents have no background runs: no worker would notice an abort.
        let has_runs = definition.store.as_ref().is_some_and(|store| store.can_watch());
        let mut archive = Vec::new();
        if is_stored {
            archive = archive_actions::archive_actions(&definition);
            archive.extend(archive_actions::tenant_actions(&definition));
        }
        let parts = AgentParts {
            registry,
            run: actions::run_action(&definition),
            snapshot: is_stored.then(|| actions::snapshot_action(&definition)),
            snapshots: is_stored.then(|| actions::snapshots_action(&definition)),
            session: is_stored.then(|| actions::session_action(&definition)),
            abort: has_runs.then(|| actions::abort_action(&definition)),
            watch: has_runs.then(|| background_runs::watch_action(&definition)),
            archive,
            definition,
        };
        Self {
            parts: Arc::new(parts),
            types: PhantomData,
        }
    }

    /// Registers the agent's action and its companion actions under the agent's name.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the name is taken.
    pub fn register(&self, registry: &Registry) -> Result<()> {
        let parts = &*self.parts;
        registry.register(Arc::new(parts.run.clone()))?;
        if parts.definition.is_session_flow {
            let key = format!("/session-flow/{}", self.name());
            registry.register_under(&key, Arc::new(parts.run.clone()))?;
        }
        let stores = ["snapshot-store", "session-store"];
        self.register_companion(registry, parts.snapshot.as_ref(), &stores, "getSnapshot")?;
        self.register_companion(registry, parts.snapshots.as_ref(), &stores, "listSnapshots")?;
        self.register_companion(registry, parts.session.as_ref(), &["session-store"], "getSession")?;
        self.register_companion(registry, parts.abort.as_ref(), &[], "")?;
        self.register_companion(registry, parts.watch.as_ref(), &[], "")?;
        // Last, so that an agent whose name is taken is not recovered under it.
        for action in &self.parts.archive {
            registry.register(Arc::clone(action))?;
        }
        if !registry.ptr_eq(&self.parts.registry) {
            // The actions there must find this agent's models and tools for as long as they can be called.
            registry.set_value(
                format!("agent-registry/{}", self.name()),
                self.parts.registry.clone(),
            );
        }
        recovery::register(registry, &self.parts.definition);
        Ok(())
    }

    /// Registers a companion action, if the agent has it, also under the keys that it had in earlier designs
    /// of the protocol, as an operation of the agent's stores.
    fn register_companion<A: DynAction + Clone>(
        &self,
        registry: &Registry,
        action: Option<&A>,
        stores: &[&str],
        operation: &str,
    ) -> Result<()> {
        let Some(action) = action else {
            return Ok(());
        };
        let action: Arc<dyn DynAction> = Arc::new(action.clone());
        registry.register(Arc::clone(&action))?;
        stores.iter().try_for_each(|store| {
            let key = format!("/{store}/{}/{operation}", self.name());
            registry.register_under(&key, Arc::clone(&action))
        })
    }

    /// Returns the agent's name.
    pub fn name(&self) -> &str {
        &self.parts.definition.name
    }

    /// Returns the description of the agent's purpose, if it has one.
    pub fn description(&self) -> Option<&str> {
        self.parts.definition.description.as_deref()
    }

    /// Returns where the state is kept, whether background runs can be aborted, and the state's schema.
    pub fn metadata(&self) -> AgentMetadata {
        actions::metadata(&self.parts.definition)
    }

    /// Returns the store of the agent's sessions, whose snapshots are raw; `None` if its clients keep the
    /// state.
    pub fn store(&self) -> Option<&Arc<dyn SessionStore>> {
        self.parts.definition.store.as_ref()
    }

    /// Returns the registry in which the agent finds models, tools and prompts.
    pub fn registry(&self) -> &Registry {
        &self.parts.registry
    }

    /// Returns the action that runs the agent. It can be called for as long as the agent or its registry is
    /// there.
    pub fn action(&self) -> &AgentAction {
        &self.parts.run
    }

    /// Returns the companion action that reads snapshots; `None` without a store.
    pub fn snapshot_action(&self) -> Option<&SnapshotAction> {
        self.parts.snapshot.as_ref()
    }

    /// Returns the companion action that lists a session's snapshots; `None` without a store.
    pub fn snapshots_action(&self) -> Option<&SnapshotsAction> {
        self.parts.snapshots.as_ref()
    }

    /// Returns the companion action that reads a session at its tip; `None` without a store.
    pub fn session_action(&self) -> Option<&SessionAction> {
        self.parts.session.as_ref()
    }

    /// Returns the companion action that aborts background runs; `None` unless the store's snapshots can be
    /// watched.
    pub fn abort_action(&self) -> Option<&AbortAction> {
        self.parts.abort.as_ref()
    }

    /// Returns the companion action that shows background runs; `None` unless the store's snapshots can be
    /// watched.
    pub fn watch_action(&self) -> Option<&WatchAction> {
        self.parts.watch.as_ref()
    }

    /// Runs one turn of a new session.
    ///
    /// # Errors
    /// The error of the turn, in which [`AgentReply::of`] finds the reply of a failed turn.
    pub async fn run(&self, input: impl Into<AgentInput>) -> Result<AgentReply<S, O>> {
        self.chat().run(input).await
    }

    /// Runs one turn of a new session on a text.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub async fn run_text(&self, text: impl Into<String>) -> Result<AgentReply<S, O>> {
        self.run(text.into()).await
    }

    /// Starts one turn of a new session and streams it: chunks, then the [reply](ChatTurn::output).
    ///
    /// ```
    /// # use everturn_agent::{AgentSession, custom_agent};
    /// # use everturn_core::{Registry, Result};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// # let chef = custom_agent(&registry, "chef", |session: AgentSession| async move {
    /// #     session.run(|turn| async move {
    /// #         turn.send_chunk("Leek ").await?;
    /// #         Ok(turn.send_chunk("soup.").await?)
    /// #     }).await?;
    /// #     Ok(session.result())
    /// # })
    /// # .define()?;
    /// let mut turn = chef.stream_text("Something with leeks?").await?;
    /// while let Some(chunk) = turn.next().await {
    ///     print!("{}", chunk?.text());
    /// }
    /// let reply = turn.output().await?;
    /// # assert!(reply.session_id().is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the input cannot be sent. Every other failure is the turn's: see [`ChatTurn`].
    pub async fn stream(&self, input: impl Into<AgentInput>) -> Result<ChatTurn<'static, S, T, O>>
    where
        T: 'static,
        O: 'static,
    {
        self.chat().stream(input).await
    }

    /// Starts one turn of a new session on a text and streams it, as [`Agent::stream`] does.
    ///
    /// # Errors
    /// As [`Agent::stream`].
    pub async fn stream_text(&self, text: impl Into<String>) -> Result<ChatTurn<'static, S, T, O>>
    where
        T: 'static,
        O: 'static,
    {
        self.stream(text.into()).await
    }

    /// Opens an invocation in the current context: many turns over one connection.
    pub fn connect(&self, init: AgentInit) -> AgentConnection<S> {
        self.connect_in(init, &Context::current())
    }

    /// Opens an invocation in the given context.
    pub fn connect_in(&self, init: AgentInit, context: &Context) -> AgentConnection<S> {
        AgentConnection::new(self.parts.run.connect_in(init, &self.with_registry(context)))
    }

    /// Begins or resumes a session, as a chat of many turns.
    pub fn chat(&self) -> ChatBuilder<S, T, O> {
        ChatBuilder::new(self.transport())
    }

    /// Returns a handle on a background run, given the id of its snapshot.
    pub fn task(&self, id: impl Into<SnapshotId>) -> AgentTask<S, T, O> {
        AgentTask::new(self.transport(), Context::current(), id.into())
    }

    /// Reads the snapshot with that id, as clients see it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none, `FAILED_PRECONDITION` without a store, `INVALID_ARGUMENT` for an empty
    /// id.
    pub async fn get_snapshot(&self, id: impl Into<SnapshotId>) -> Result<Snapshot> {
        let request = GetSnapshotRequest::snapshot(id);
        self.find_snapshot(request).await
    }

    /// Reads the latest snapshot of a session, as clients see it.
    ///
    /// # Errors
    /// As [`Agent::get_snapshot`].
    pub async fn latest_snapshot(&self, session: impl Into<SessionId>) -> Result<Snapshot> {
        let request = GetSnapshotRequest::latest(session);
        self.find_snapshot(request).await
    }

    async fn find_snapshot(&self, request: GetSnapshotRequest) -> Result<Snapshot> {
        self.parts
            .definition
            .read_snapshot(request, &Context::current())
            .await
    }

    /// Returns the archive of the current context's tenant, as clients see it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` without a store.
    pub fn archive(&self) -> Result<Archive> {
        self.archive_in(&Context::current())
    }

    /// Returns the archive of the given context's tenant, as clients see it.
    ///
    /// # Errors
    /// As [`Agent::archive`].
    pub fn archive_in(&self, context: &Context) -> Result<Archive> {
        self.parts.definition.archive(context)
    }

    /// Returns all tenants of the agent's store, for its operator: to list them, to delete one, to apply
    /// rules of retention to all.
    ///
    /// # Errors
    /// As [`Agent::archive`].
    pub fn tenants(&self) -> Result<Tenants> {
        self.parts.definition.tenants()
    }

    /// Aborts the background run of a pending snapshot; `None` if the snapshot does not exist.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` without a store, `INVALID_ARGUMENT` for an empty id.
    pub async fn abort(&self, id: impl Into<SnapshotId>) -> Result<Option<Abort>> {
        self.parts
            .definition
            .abort_run(&id.into(), &Context::current())
            .await
    }

    /// Polls once for background runs of this agent whose worker was lost, and takes them over.
    ///
    /// A run that was taken over continues in this process like one that was started here. Of several
    /// processes that poll at the same time, exactly one takes over each run. Runs that are in progress here
    /// are left alone.
    pub async fn recover(&self) -> Recovery {
        self.parts.definition.recover().await
    }

    /// Returns how many invocations are in progress, including background runs.
    pub fn invocations(&self) -> usize {
        self.parts.definition.invocations.len()
    }

    /// Waits until no invocation is in progress, including background runs.
    ///
    /// Invocations that begin meanwhile are waited for too: stop taking requests first.
    pub async fn idle(&self) {
        let invocations = &self.parts.definition.invocations;
        invocations.close();
        invocations.wait().await;
        invocations.reopen();
    }

    /// Returns a context that keeps the agent's registry until the invocation has begun.
    fn with_registry(&self, context: &Context) -> Context {
        RegistryGuard::in_context(context, &self.parts.registry)
    }

    /// Returns the way from chats to this agent; the types are theirs.
    fn transport(&self) -> Arc<dyn AgentTransport> {
        Arc::new(Agent::<Value> {
            parts: Arc::clone(&self.parts),
            types: PhantomData,
        })
    }

    pub(crate) fn definition(&self) -> &Arc<Definition> {
        &self.parts.definition
    }
}

impl<S, T, O> Clone for Agent<S, T, O> {
    fn clone(&self) -> Self {
        Self {
            parts: Arc::clone(&self.parts),
            types: PhantomData,
        }
    }
}

everturn_core::opaque_debug!(Agent<S, T, O>, parts.definition.name);

/// The transport by which chats reach an agent in this process.
impl<S: CustomState, T: 'static, O: 'static> AgentTransport for Agent<S, T, O> {
    fn connect(
        &self,
        init: AgentInit,
        context: &Context,
    ) -> Connection<AgentInput, AgentOutput, AgentStreamChunk> {
        self.action().connect_in(init, &self.with_registry(context))
    }

    fn run(
        &self,
        init: AgentInit,
        input: AgentInput,
        emitter: Emitter<AgentStreamChunk>,
        context: &Context,
    ) -> BoxFuture<'static, Result<AgentOutput>> {
        let definition = Arc::clone(self.definition());
        let context = self.with_registry(context).child();
        Box::pin(async move {
            // Dropping the call ends the agent; cancelling reaches work that it handed to others.
            let _cancel = context.cancellation().clone().drop_guard();
            let inputs = Inputs::from_stream(stream::iter([input]));
            invocation::run(definition, init, inputs, emitter, context).await
        })
    }

    fn snapshot(&self, request: GetSnapshotRequest, context: Context) -> BoxFuture<'_, Result<Snapshot>> {
        Box::pin(async move { self.definition().read_snapshot(request, &context).await })
    }

    fn abort(&self, id: SnapshotId, context: Context) -> BoxFuture<'_, Result<Option<Abort>>> {
        Box::pin(async move { self.definition().abort_run(&id, &context).await })
    }

    fn watch(&self, id: &SnapshotId, context: &Context) -> Option<StatusStream> {
        let definition = self.definition();
        definition.store.as_ref()?.watch(&definition.scope(context), id)
    }

    fn follow(&self, id: &SnapshotId, context: &Context) -> Option<RunChunks> {
        self.definition().follow(id, context).ok()
    }

    fn state_management(&self) -> Option<StateManagement> {
        Some(self.metadata().state_management)
    }

    fn takeover_patience(&self) -> Duration {
        self.definition().takeover_patience()
    }
}
