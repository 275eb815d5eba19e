//! Defining an agent.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use everturn_ai::prompt::{Prompt, note_model};
use everturn_ai::{ToolErrors, Window};
use everturn_core::stream_log::{IntoStreamLog, StreamLog};
use everturn_core::{
    ActionType, Context, Error, Function, HandlerResult, Registry, Requirement, Result, Status,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio_util::task::TaskTracker;

use super::new_sessions::always;
use crate::invocation::answers::RestartInputs;
use crate::invocation::turn_lock::TURN_LEASE;
use crate::invocation::turn_observer::turn_observers;
use crate::invocation::{
    AgentFunction, AgentPrompt, Definition, RespondOnly, Settings, TypedFunction, Visibility, schema_of,
};
use crate::journal::Retention;
use crate::policy::FailedTurns;
use crate::policy::client_permissions::{ClientRules, Rules};
use crate::policy::limits::ChosenLimits;
use crate::policy::transform::{StateTransform, one_after_another, over_custom_state};
use crate::runs::run_stream::own_log;
use crate::runs::{Runs, stream_logs};
use crate::storage::session_state::{AgentTypes, decode_custom};
use crate::store::{IntoStore, Scope, SessionStore, TurnLocks};
use crate::{
    Agent, AgentResult, AgentSession, AgentStreamChunk, ClientPermissions, Clock, Concurrency, CustomState,
    Heartbeat, Journaling, Limits, SessionState, SnapshotIds, SnapshotMoment, SnapshotPolicy, Timeline,
    TurnLocking, WhileInterrupted, WorkerLoss,
};

/// The shortest time for which a turn may hold its lock in the store without a renewal.
const SHORTEST_TURN_LEASE: Duration = Duration::from_millis(100);

/// Defines an agent whose turn loop is `function`.
///
/// ```
/// use everturn_agent::{AgentSession, custom_agent};
/// use everturn_core::{Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// let parrot = custom_agent(&registry, "parrot", |session: AgentSession| async move {
///     session
///         .run(|turn| async move {
///             let heard = turn.message().map(|message| message.text().into_owned());
///             turn.add_message(everturn_ai::Message::model(heard.unwrap_or_default()));
///             Ok(())
///         })
///         .await?;
///     Ok(session.result())
/// })
/// .define()?;
///
/// assert_eq!(parrot.run_text("hello").await?.text(), "hello");
/// # Ok(()) }
/// ```
///
/// A value that the function returns with its result ([`AgentResult::with_output`]) is typed for callers: `O`
/// is its type.
///
/// The function may take more arguments, from the context of the invocation: [`Dep`](everturn_core::Dep) for
/// a value that was given to the application, [`Principal`](everturn_core::Principal) for the caller.
///
/// ```
/// use everturn_agent::{AgentSession, custom_agent};
/// use everturn_core::{Dep, Principal, Registry, Result};
///
/// struct Menu(Vec<&'static str>);
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// registry.provide(Menu(vec!["soup"]));
/// let waiter = custom_agent(&registry, "waiter", |session: AgentSession, menu: Dep<Menu>, guest: Principal| async move {
///     let (menu, guest) = (&menu, &guest);
///     session
///         .run(|turn| async move {
///             turn.add_message(everturn_ai::Message::model(format!("{} for {}", menu.0[0], guest.id())));
///             Ok(())
///         })
///         .await?;
///     Ok(session.result())
/// })
/// .define()?;
///
/// let reply = waiter.chat().context(Principal::new("ann")).run("hungry").await?;
/// assert_eq!(reply.text(), "soup for ann");
/// # Ok(()) }
/// ```
pub fn custom_agent<S, O, A, F>(
    registry: &Registry,
    name: impl Into<String>,
    function: F,
) -> AgentBuilder<S, Custom<S>, Value, O>
where
    S: CustomState,
    O: Serialize + JsonSchema + Send + 'static,
    F: Function<(AgentSession<S>,), AgentResult<O>, A>,
{
    let function: Arc<AgentFunction<S>> = Arc::new(move |session: AgentSession<S>| {
        let context = session.context().clone();
        let running = function.call((session,), &context);
        Box::pin(async move { running.await?.untyped() })
    });
    let kind = Custom {
        function,
        requirements: F::requirements(),
    };
    let builder = AgentBuilder::new(registry, name, kind);
    builder.set(|agent| agent.settings.output_schema = schema_of::<O>())
}

/// Defines an agent whose turn loop is `function`, under the name of earlier designs: a session flow, which
/// streams its progress in a custom status type.
///
/// It is [`custom_agent`] with the names of those designs: its action is also found as
/// `/session-flow/{name}`, the spans of its turns are `sessionFlow/turn/0`, `sessionFlow/turn/1`, …, and the
/// span in which a snapshot was written names the flow in `genkit:metadata:sessionFlow` and the snapshot in
/// `genkit:metadata:snapshotId`.
///
/// ```
/// use everturn_agent::{AgentSession, session_flow};
/// use everturn_core::{Registry, Result};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
/// enum Doing {
///     Chopping { vegetables: u32 },
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// let cook = session_flow(&registry, "cook", |session: AgentSession| async move {
///     session
///         .run(|turn| async move { Ok(turn.send_status(Doing::Chopping { vegetables: 3 }).await?) })
///         .await?;
///     Ok(session.result())
/// })
/// .status::<Doing>()
/// .define()?;
///
/// let mut chat = cook.chat().open().await?;
/// let mut turn = chat.send("Soup, please.").await?;
/// let first = turn.next().await.expect("a chunk")?;
///
/// assert_eq!(first.status()?, Some(Doing::Chopping { vegetables: 3 }));
/// # Ok(()) }
/// ```
pub fn session_flow<S, O, A, F>(
    registry: &Registry,
    name: impl Into<String>,
    function: F,
) -> AgentBuilder<S, Custom<S>, Value, O>
where
    S: CustomState,
    O: Serialize + JsonSchema + Send + 'static,
    F: Function<(AgentSession<S>,), AgentResult<O>, A>,
{
    custom_agent(registry, name, function).set(|agent| agent.settings.is_session_flow = true)
}

/// The settings of an agent before it is defined. A setting that is given again replaces the earlier one.
///
/// `K` is the kind of agent: one with a custom turn loop ([`Custom`]), or one around a prompt
/// ([`InlinePrompt`](crate::InlinePrompt), [`NamedPrompt`](crate::NamedPrompt)). `T` is the type of the
/// status that the agent streams, `O` that of the value that its function returns.
#[must_use = "an agent exists once it is built or defined"]
pub struct AgentBuilder<S, K = Custom<S>, T = Value, O = Value> {
    registry: Registry,
    name: String,
    pub(crate) kind: K,
    pub(super) settings: Settings,
    pub(super) options: Options,
    types: AgentTypes<S, T, O>,
}

/// The kinds of agents, which differ in where their function comes from.
pub trait AgentKind<S>: sealed::Sealed + Sized {
    /// Returns the function that runs the agent's turns, and the prompt that it renders.
    #[doc(hidden)]
    fn into_program(self, agent: &AgentOrigin<'_>) -> Result<AgentProgram<S>>;
}

/// The program of a kind of agent.
#[doc(hidden)]
pub struct AgentProgram<S> {
    pub(crate) function: Arc<AgentFunction<S>>,
    pub(crate) prompt: Option<Prompt>,
    /// The tools that cannot be restarted.
    pub(crate) respond_only: RespondOnly,
}

/// The agent for which a kind creates the function.
#[doc(hidden)]
pub struct AgentOrigin<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) name: &'a str,
    pub(crate) prompt_input: Option<&'a Arc<Value>>,
}

pub(crate) mod sealed {
    /// Seals the kinds of agents, which only the framework defines.
    pub trait Sealed {}
}

/// The kind of an agent that runs its turns itself.
pub struct Custom<S> {
    function: Arc<AgentFunction<S>>,
    requirements: Vec<Requirement>,
}

impl<S> sealed::Sealed for Custom<S> {}

impl<S> AgentKind<S> for Custom<S> {
    /// Fails with `FAILED_PRECONDITION` if the application was not given a value that the function takes.
    fn into_program(self, agent: &AgentOrigin<'_>) -> Result<AgentProgram<S>> {
        let function = format_args!("agent '{}'", agent.name);
        agent
            .registry
            .dependencies()
            .check(function, &self.requirements)?;
        Ok(AgentProgram {
            function: self.function,
            prompt: None,
            respond_only: RespondOnly::new(),
        })
    }
}

/// The settings that are used up when the agent is built.
#[derive(Default)]
pub(super) struct Options {
    custom_transform: Option<StateTransform>,
    turn_locking: TurnLocking,
    turn_lease: Option<Duration>,
    journaling: Journaling,
    run_log: Option<Arc<dyn StreamLog>>,
    clock: Option<Clock>,
    client_permissions: ClientPermissions,
    resources: Vec<String>,
    /// The initial custom state, if it was given as a value.
    pub(super) initial_custom: Option<Result<Value>>,
}

impl<S, K, T, O> AgentBuilder<S, K, T, O> {
    pub(crate) fn new(registry: &Registry, name: impl Into<String>, kind: K) -> Self {
        Self {
            registry: registry.clone(),
            name: name.into(),
            kind,
            settings: Settings::default(),
            options: Options::default(),
            types: PhantomData,
        }
    }

    /// The same agent with other types.
    fn retyped<S2, T2, O2>(self) -> AgentBuilder<S2, K, T2, O2> {
        AgentBuilder {
            registry: self.registry,
            name: self.name,
            kind: self.kind,
            settings: self.settings,
            options: self.options,
            types: PhantomData,
        }
    }

    /// The same agent with another type of custom state.
    pub(crate) fn with_custom<S2>(self) -> AgentBuilder<S2, K, T, O> {
        self.retyped()
    }

    pub(super) fn set(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl<S: CustomState, K: AgentKind<S>, T, O> AgentBuilder<S, K, T, O> {
    /// Sets the description of the agent's purpose, for people and for models that delegate to it.
    pub fn description(self, description: impl Into<String>) -> Self {
        self.set(|agent| agent.settings.description = Some(description.into()))
    }

    /// Declares the type of the status that the agent streams
    /// ([`Turn::send_status`](crate::Turn::send_status)).
    ///
    /// Callers in Rust read it as that type ([`AgentChunk::status`](crate::AgentChunk::status)), the agent's
    /// metadata has its schema, and sending a status that does not fit fails.
    pub fn status<U: JsonSchema + 'static>(self) -> AgentBuilder<S, K, U, O> {
        self.set(|agent| agent.settings.status_schema = schema_of::<U>())
            .retyped()
    }

    everturn_core::setters! {
        /// Keeps sessions in a store; without one, the client keeps the state.
        ///
        /// Agents that should see each other's turns on a session must be given the same [`Arc`].
        pub fn store(mut self, store: impl IntoStore) { self.settings.store = Some(store.into_store()) }

        /// Isolates tenants: `scope` returns the tenant whose snapshots a call may see.
        ///
        /// By default the tenant is the [`Scope`] in the extensions of the call's context, which a server
        /// sets for authenticated callers, or else the default scope.
        pub fn scope(mut self, scope: impl Fn(&Context) -> Scope + Send + Sync + 'static) {
            self.settings.scope = Some(Arc::new(scope));
        }
    }

    /// Transforms the custom state that clients see: in snapshot reads, client-managed outputs and
    /// custom-state patches.
    ///
    /// The transform gets the state as the agent keeps it, and returns any value that can be written as JSON:
    /// the same type with fields cleared, or another type for clients. `Ok(None)` shows no custom state. An
    /// error or a panic withholds the state and fails the read or the invocation. To transform messages and
    /// artifacts too, see [`AgentBuilder::state_transform`], which gets the result of this transform.
    ///
    /// ```
    /// # use everturn_agent::{AgentSession, custom_agent};
    /// # use everturn_core::{Registry, Result};
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
    /// struct Kitchen {
    ///     pantry: Vec<String>,
    ///     secret_recipe: String,
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// let chef = custom_agent(&registry, "chef", |session: AgentSession<Kitchen>| async move {
    ///     session.run(|turn| async move { Ok(()) }).await?;
    ///     Ok(session.result())
    /// })
    /// .custom_transform(|mut kitchen, _context| {
    ///     kitchen.secret_recipe.clear();
    ///     Ok(Some(kitchen))
    /// })
    /// .define()?;
    /// # Ok(()) }
    /// ```
    pub fn custom_transform<C: Serialize>(
        self,
        transform: impl Fn(S, &Context) -> HandlerResult<Option<C>> + Send + Sync + 'static,
    ) -> Self {
        self.set(|agent| agent.options.custom_transform = Some(over_custom_state(transform)))
    }

    /// Transforms every state that leaves the agent: snapshot reads, client-managed outputs and custom-state
    /// patches.
    ///
    /// The custom state is JSON here; [`SessionState::custom_as`] reads it and [`SessionState::with_custom`]
    /// replaces it as its type, and [`AgentBuilder::custom_transform`] receives it alone. `Ok(None)` shows no
    /// state. An error or a panic withholds it and fails the read or the invocation. The transform runs while
    /// the session is in use and must not change it.
    pub fn state_transform(
        self,
        transform: impl Fn(SessionState, &Context) -> HandlerResult<Option<SessionState>> + Send + Sync + 'static,
    ) -> Self {
        self.set(|agent| agent.settings.state_transform = Some(Arc::new(transform)))
    }

    /// Transforms every chunk that leaves the agent.
    ///
    /// `Ok(None)` drops the chunk, but not the change that it reports. An error or a panic withholds it and
    /// all later ones and fails the invocation. Dropping the `turnEnd` chunks leaves clients waiting; to
    /// redact custom state, use [`AgentBuilder::custom_transform`], because a changed patch no longer fits
    /// the client's view.
    pub fn stream_transform(
        self,
        transform: impl Fn(AgentStreamChunk, &Context) -> HandlerResult<Option<AgentStreamChunk>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.set(|agent| agent.settings.stream_transform = Some(Arc::new(transform)))
    }

    everturn_core::setters! {
        /// Sets the policy for concurrent turns of one session; by default the second is rejected.
        pub fn concurrency(mut self, concurrency: Concurrency) { self.settings.concurrency = concurrency }

        /// Sets where concurrent turns of one session are detected: in the store, for turns of all processes,
        /// or in this process. By default the store decides; `everturn-postgres` locks turns in the store.
        ///
        /// A lock in the store costs one more small write per turn.
        pub fn turn_locking(mut self, locking: TurnLocking) { self.options.turn_locking = locking }

        /// Sets how long a turn holds its lock in the store after its process has died; 15 s by default.
        /// Running processes renew it.
        pub fn turn_lease(mut self, lease: Duration) { self.options.turn_lease = Some(lease) }

        /// Sets which moments become snapshots; the default is the end of every successful turn.
        pub fn snapshots(mut self, policy: SnapshotPolicy) { self.settings.snapshots = policy }
    }

    /// Takes snapshots at the moments that `decide` selects. It gets the custom state at the moment and, if
    /// there is one, at the previous snapshot. Replaces [`AgentBuilder::snapshots`].
    ///
    /// The invocation waits for `decide`, so it should be fast. A stored custom state that is not an `S`
    /// fails the invocation.
    ///
    /// ```
    /// # use everturn_agent::{AgentSession, SnapshotEvent, custom_agent, store::MemoryStore};
    /// # use everturn_core::{Registry, Result};
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
    /// struct Kitchen {
    ///     pantry: Vec<String>,
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// let chef = custom_agent(&registry, "chef", |session: AgentSession<Kitchen>| async move {
    ///     session.run(|turn| async move { Ok(()) }).await?;
    ///     Ok(session.result())
    /// })
    /// .store(MemoryStore::new())
    /// .snapshots_when(|moment, kitchen, before| {
    ///     let grown = before.is_none_or(|before| kitchen.pantry.len() > before.pantry.len());
    ///     moment.event == SnapshotEvent::TurnEnd && grown
    /// })
    /// .define()?;
    /// # Ok(()) }
    /// ```
    pub fn snapshots_when(
        self,
        decide: impl Fn(&SnapshotMoment<'_>, &S, Option<&S>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.snapshots(SnapshotPolicy::over_custom_state(decide))
    }

    everturn_core::setters! {
        /// Sets how snapshots are named; by a UUID by default.
        pub fn snapshot_ids(mut self, ids: SnapshotIds) { self.settings.snapshot_ids = ids }

        /// Sets what resuming an earlier snapshot does to the later ones; by default they stay, as another
        /// branch.
        pub fn timeline(mut self, timeline: Timeline) { self.settings.timeline = timeline }

        /// Writes the id of each snapshot into the metadata entry `snapshotId` of its last message, so that a
        /// client can offer to go back to that message. Messages keep these ids as the conversation
        /// continues.
        ///
        /// The message with the id replaces the original one, so each snapshot begins a new lineage.
        pub fn snapshot_id_in_messages(mut self) { self.settings.names_messages = true }

        /// Lets a session be resumed by its id although its latest snapshot is not a resume point: a
        /// background run in progress, or one that [left nothing](FailedTurns::Discard). The session
        /// continues from the nearest resume point before it, or starts a new conversation if there is none.
        pub fn resume_past_failures(mut self) { self.settings.resume_past_failures = true }

        /// Sets the state that is left by a turn that fails, or whose client leaves: by default a snapshot
        /// with all finished rounds, from which every client can continue ([`FailedTurns::Keep`]).
        ///
        /// The snapshot's id is a UUID, and comes with the end of the turn and with the output. It can be
        /// resumed by that id, or by the session's: an input without a message
        /// ([`Chat::retry`](crate::Chat::retry)) continues the turn without repeating its effects; an input
        /// with a message continues the conversation after the one that failed.
        ///
        /// The turns of a background run have no snapshots of their failures: the run's last snapshot holds
        /// its last state.
        pub fn failed_turns(mut self, failed_turns: FailedTurns) { self.settings.failed_turns = failed_turns }

        /// Sets whether failed tool calls are reported to the model or fail the turn. By default the model
        /// receives its own mistakes and errors that it can act on ([`ToolErrors::Fail`]).
        ///
        /// ```
        /// use everturn_agent::agent;
        /// use everturn_ai::{Tool, ToolContext, ToolErrors};
        /// use everturn_core::{Error, Registry, Result};
        /// # fn main() -> Result<()> {
        /// # let registry = Registry::new();
        /// let order = Tool::new("order", "Looks up an order.", |number: u32, _: ToolContext| async move {
        ///     // The model reads this and asks the customer again.
        ///     Err::<String, _>(Error::not_found(format!("there is no order {number}")).for_model().into())
        /// });
        /// agent(&registry, "support").tool(order).tool_errors(ToolErrors::Tell).define()?;
        /// # Ok(()) }
        /// ```
        pub fn tool_errors(mut self, choice: ToolErrors) { self.settings.tool_errors = Some(choice) }

        /// Sets the part of a long conversation that the model sees; by default as much as fits its context
        /// window ([`Window::of_model`]). The session keeps everything.
        ///
        /// It applies to the agent's prompt and for [`Turn::generate`](crate::Turn::generate).
        ///
        /// ```
        /// use everturn_agent::agent;
        /// use everturn_ai::Window;
        /// # use everturn_core::{Registry, Result};
        /// # fn main() -> Result<()> {
        /// # let registry = Registry::new();
        /// agent(&registry, "support")
        ///     .system("You help people with their orders.")
        ///     .window(Window::last_tokens(8_000).summarize_with("small").ahead_of_time())
        ///     .define()?;
        /// # Ok(()) }
        /// ```
        pub fn window(mut self, window: Window) { self.settings.window = window }
    }

    /// Limits what turns, invocations and sessions may use, and how often a turn may repeat a tool call. A
    /// limit that the agent does not set is the application's ([`set_limits`](crate::set_limits)).
    pub fn limits(self, limits: Limits) -> Self {
        self.limits_for(move |_| limits.clone())
    }

    everturn_core::setters! {
        /// Computes the limits from the context of each invocation, for example from a customer's plan.
        ///
        /// ```
        /// use everturn_agent::{Limits, agent};
        /// use everturn_ai::Budget;
        /// # use everturn_core::{Principal, Registry, Result};
        /// # fn main() -> Result<()> {
        /// # let registry = Registry::new();
        /// agent(&registry, "support")
        ///     .limits_for(|context| {
        ///         let pays = Principal::of(context).is_some_and(|caller| caller.has_role("customer"));
        ///         Limits::new().per_session(Budget::new().tokens(if pays { 1_000_000 } else { 20_000 }))
        ///     })
        ///     .define()?;
        /// # Ok(()) }
        /// ```
        pub fn limits_for(mut self, limits: impl Fn(&Context) -> Limits + Send + Sync + 'static) {
            self.settings.limits = ChosenLimits::new(limits);
        }

        /// Sets what happens to a message that arrives while tool requests wait for answers; by default the
        /// requests are closed, and the conversation continues.
        ///
        /// ```
        /// use everturn_agent::{WhileInterrupted, agent};
        /// # use everturn_core::{Registry, Result};
        /// # fn main() -> Result<()> {
        /// # let registry = Registry::new();
        /// // Nothing else is talked about before a payment is approved or declined.
        /// agent(&registry, "banker").while_interrupted(WhileInterrupted::Reject).define()?;
        /// # Ok(()) }
        /// ```
        pub fn while_interrupted(mut self, policy: WhileInterrupted) { self.settings.while_interrupted = policy }

        /// Lets people who answer an interrupt change the arguments of the call: a restart whose metadata
        /// `replacedInput` repeats the recorded input ([`Part::restart`](everturn_ai::Part::restart)) runs
        /// the tool with the input that it has, if that fits the tool's schema. By default only the recorded
        /// input may run. A tool that [sets](everturn_ai::Tool::with_editable_input) whether its arguments
        /// may be edited is not affected, except that an agent that runs its turns itself must allow edits,
        /// too.
        ///
        /// Every client of the agent then decides what an interrupted tool does, so the tools must check
        /// their arguments. The model is not called again: it receives the tool's answer next to its own
        /// arguments.
        pub fn allow_edited_inputs(mut self) { self.settings.restart_inputs = RestartInputs::Edited }

        /// Sets how often background runs renew their heartbeat, and when one counts as lost.
        pub fn heartbeat(mut self, heartbeat: Heartbeat) { self.settings.heartbeat = heartbeat }

        /// Sets what happens to background runs whose worker is lost; by default another worker takes them
        /// over.
        ///
        /// Workers find them by polling: see [`Agent::recover`] and [`recover_every`](crate::recover_every).
        pub fn on_worker_loss(mut self, policy: WorkerLoss) { self.settings.worker_loss = policy }
    }

    /// Adds names of values in the caller's [`Context`], such as `auth`, that a background run records in its
    /// snapshot for a worker that takes it over. The default is none.
    ///
    /// A run that is taken over has only these values. They are stored unencrypted: name no secrets. An agent
    /// with a [`scope`](AgentBuilder::scope) must name the values from which the scope is computed, or its
    /// runs are not taken over. Without one, the tenant of a run follows from its place in the store.
    pub fn record_context<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.set(|agent| {
            for name in names.into_iter().map(Into::into) {
                if !agent.settings.recorded_context.contains(&name) {
                    agent.settings.recorded_context.push(name);
                }
            }
        })
    }

    everturn_core::setters! {
        /// Sets the log in which background runs keep their chunks for watchers; by default it is in this
        /// process's memory.
        ///
        /// With a log that several processes share, a run can be watched from any of them, also across a
        /// takeover.
        pub fn run_log(mut self, log: impl IntoStreamLog) { self.options.run_log = Some(log.into_stream_log()) }

        /// Sets how long cancelled work may take to clean up before it is dropped.
        pub fn cancellation_grace(mut self, grace: Duration) { self.settings.cancellation_grace = Some(grace) }

        /// Sets the approximate maximum size of a session's state, in bytes of JSON; 64 MiB by default. The
        /// state may take four times as many bytes of memory.
        ///
        /// A turn whose message, or whose outcome, makes the state larger fails with `RESOURCE_EXHAUSTED` and
        /// [`STATE_TOO_LARGE`](crate::STATE_TOO_LARGE), and is not kept.
        pub fn max_state_bytes(mut self, bytes: u64) { self.settings.max_state_bytes = Some(bytes) }

        /// Sets the fields that clients may set in a turn in addition to their message; nothing by default.
        ///
        /// ```
        /// use everturn_agent::{ClientPermissions, agent};
        /// # use everturn_core::{Registry, Result};
        /// # fn main() -> Result<()> {
        /// # let registry = Registry::new();
        /// // A front end brings tools of its own, and tells the model what the user is looking at.
        /// agent(&registry, "painter")
        ///     .client_permissions(ClientPermissions::none().tools().instructions())
        ///     .define()?;
        /// # Ok(()) }
        /// ```
        pub fn client_permissions(mut self, permissions: ClientPermissions) {
            self.options.client_permissions = permissions;
        }
    }

    /// Adds registered [resources](everturn_ai::Resource), by name, that clients' messages may link to; none
    /// by default. A resource has the name of its URI or template, unless its plugin names it.
    ///
    /// A message of a client with a link to any other resource is `INVALID_ARGUMENT`. A link to a listed one
    /// is read in the context of the caller, so the resource itself decides who may read what, by its
    /// caller's [`Principal`](everturn_core::Principal). Links in the agent's own prompt, and in messages of
    /// this program, may name every registered resource.
    ///
    /// ```
    /// use everturn_agent::agent;
    /// use everturn_ai::{Resource, define_resource};
    /// # use everturn_core::{Registry, Result};
    /// # fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// let recipes = Resource::template("recipe://{dish}", |input| async move {
    ///     Ok(format!("How to cook {}.", input.variables["dish"]))
    /// })?;
    /// define_resource(&registry, &recipes)?;
    /// agent(&registry, "chef").resources(["recipe://{dish}"]).define()?;
    /// # Ok(()) }
    /// ```
    pub fn resources<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.set(|agent| agent.options.resources.extend(names.into_iter().map(Into::into)))
    }

    everturn_core::setters! {
        /// Makes servers offer the agent to clients although another agent [delegates](crate::Delegation) to
        /// it. Agents without delegation are always offered.
        pub fn public(mut self) { self.settings.visibility = Visibility::Public }

        /// Makes the agent internal: servers do not offer it to clients.
        ///
        /// An agent that a prompt or the settings of another agent delegate to is internal without it. It is
        /// for agents that only code at run time delegates to: a flow, a custom function, the overrides of a
        /// call.
        pub fn internal(mut self) { self.settings.visibility = Visibility::Internal }

        /// Sets whether a turn journals its effects, so that a replay of the turn repeats none; by default it
        /// does. See [`journal`](crate::journal).
        pub fn journaling(mut self, journaling: Journaling) { self.options.journaling = journaling }

        /// Sets the clock that gives snapshots and heartbeats their times; by default that of the store.
        pub fn clock(mut self, clock: Clock) { self.options.clock = Some(clock) }

        /// Sets the prompt input of conversations without one.
        pub fn prompt_input(mut self, input: impl Into<Value>) {
            self.settings.prompt_input = Some(Arc::new(input.into()));
        }
    }

    /// Builds the agent without registering it; see [`Agent::register`].
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the name is empty, a linear timeline is combined with forking, the heartbeat,
    /// the turn lease or the attempts are invalid, or turns are to be locked in a store without locks. The
    /// same if a tool of the prompt needs another custom state than the agent's, if the prompt input does not
    /// fit the prompt, or if the prompt has mistakes.
    pub fn build(self) -> Result<Agent<S, T, O>> {
        if self.name.is_empty() {
            return Err(Error::invalid_argument("an agent needs a name"));
        }
        let (mut settings, options) = (self.settings, self.options);
        if settings.timeline == Timeline::Linear && settings.concurrency == Concurrency::Fork {
            return Err(Error::invalid_argument(format!(
                "the timeline of agent '{}' is linear, so turns at the same time cannot fork it: reject or queue them",
                self.name
            )));
        }
        let turn_lease = turn_lease(&self.name, settings.store.as_ref(), &options)?;
        let of_store = || settings.store.as_ref().map(|store| store.clock());
        let clock = options.clock.clone().or_else(of_store).unwrap_or_default();
        settings.heartbeat.check()?;
        if settings.worker_loss == (WorkerLoss::TakeOver { attempts: 0 }) {
            return Err(Error::invalid_argument(format!(
                "agent '{}' needs at least one attempt at its background runs",
                self.name
            )));
        }
        let origin = AgentOrigin {
            registry: &self.registry,
            name: &self.name,
            prompt_input: settings.prompt_input.as_ref(),
        };
        // After the cheap checks: an inline prompt is registered here, under the agent's name.
        let AgentProgram {
            function,
            prompt,
            respond_only,
        } = self
            .kind
            .into_program(&origin)
            .map_err(|error| defined_twice(&origin, error))?;
        if let (Some(prompt), Some(input)) = (&prompt, &settings.prompt_input) {
            let checked = prompt.check_input(input);
            checked.map_err(|error| error.context(format_args!("agent '{}'", self.name)))?;
        }
        if let Some(model) = settings.window.summary_model() {
            note_model(&self.registry, &self.name, model);
        }
        if let Some(custom) = options.initial_custom.transpose()? {
            decode_custom::<S>(Some(&custom)).map_err(|error| {
                error.context(format_args!("agent '{}': its initial custom state", self.name))
            })?;
            settings.beginning.custom = Some(always(custom));
        }
        settings.state_transform = one_after_another(options.custom_transform, settings.state_transform);
        let definition = Definition {
            client_rules: ClientRules(Arc::new(Rules {
                agent: self.name.clone(),
                permissions: options.client_permissions,
                resources: options.resources,
                own_prompt_input: settings.prompt_input.clone(),
                registry: self.registry.downgrade(),
            })),
            stream_logs: stream_logs(&self.registry),
            turn_observers: turn_observers(&self.registry),
            registry: self.registry.downgrade(),
            function: Arc::new(TypedFunction(function)),
            turn_lease,
            journals: Retention::of(options.journaling, clock.clone(), settings.heartbeat, &self.name),
            name: self.name,
            clock,
            custom_schema: schema_of::<S>(),
            respond_only,
            prompt: prompt.map(|prompt| AgentPrompt::new(prompt, &self.registry)),
            invocations: TaskTracker::new(),
            runs: Runs::default(),
            run_log: options.run_log.unwrap_or_else(own_log),
            run_polls: Arc::default(),
            settings,
        };
        Ok(Agent::new(definition, self.registry))
    }

    /// Builds the agent and registers it with its companion actions.
    ///
    /// # Errors
    /// As [`AgentBuilder::build`]; `ALREADY_EXISTS` if the name is taken.
    pub fn define(self) -> Result<Agent<S, T, O>> {
        let registry = self.registry.clone();
        let agent = self.build()?;
        let origin = AgentOrigin {
            registry: &registry,
            name: agent.name(),
            prompt_input: None,
        };
        agent
            .register(&registry)
            .map_err(|error| defined_twice(&origin, error))?;
        Ok(agent)
    }
}

/// Returns the error about an agent whose name is taken. Its prompt and its actions have its name, so any of
/// them may be found first.
fn defined_twice(agent: &AgentOrigin<'_>, error: Error) -> Error {
    let name = agent.name;
    if error.status() != Status::AlreadyExists {
        return error;
    }
    if agent.registry.get(&ActionType::AGENT.key(name)).is_some() {
        let message = format!("agent '{name}' is already defined: give one of the two another name");
        return Error::already_exists(message).with_source(error);
    }
    error.context(format_args!("agent '{name}'"))
}

/// Returns the lease of turn locks in the store, if turns are locked there.
///
/// # Errors
/// `INVALID_ARGUMENT` if the agent requires locks and the store keeps none, or if the lease is too short.
fn turn_lease(
    agent: &str,
    store: Option<&Arc<dyn SessionStore>>,
    options: &Options,
) -> Result<Option<Duration>> {
    let locks = store.and_then(|store| store.turn_locks());
    let in_store = match options.turn_locking {
        TurnLocking::InProcess => false,
        TurnLocking::StoreDefault => locks.is_some_and(TurnLocks::is_default),
        TurnLocking::InStore if locks.is_none() => {
            return Err(Error::invalid_argument(format!(
                "agent '{agent}' is to lock its turns in the store, which needs a store that keeps turn locks"
            )));
        }
        TurnLocking::InStore => true,
    };
    let lease = options.turn_lease.unwrap_or(TURN_LEASE);
    if lease < SHORTEST_TURN_LEASE {
        return Err(Error::invalid_argument(format!(
            "agent '{agent}' has a turn lease of {lease:?}, which is too short to be renewed in time: give it at least \
             {SHORTEST_TURN_LEASE:?}"
        )));
    }
    Ok(in_store.then_some(lease))
}
