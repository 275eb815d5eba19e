//! The messages between an agent and its clients.
//!
//! Requests of clients are strict: an unknown field is an error, so that a misspelt one is not silently
//! dropped.

pub mod patch;
mod plain_protocol;

use std::borrow::Cow;
use std::sync::Arc;

use everturn_ai::prompt::PromptOverrides;
use everturn_ai::{Message, ModelResponseChunk, UsageTotal};
use everturn_core::{Context, Error, Result, RuntimeError};
use everturn_macros::wire;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::patch::JsonPatch;
pub use self::plain_protocol::PlainProtocol;
use crate::{
    AgentFinishReason, Artifact, SessionId, SessionState, SnapshotEvent, SnapshotId, SnapshotStatus,
};

/// Defines constructors of messages with one field that is not empty.
macro_rules! with_one_field {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($value:ident: $type:ty) { $field:ident: $set:expr }
    )*) => {$(
        $(#[$attribute])*
        $visibility fn $name($value: $type) -> Self {
            Self { $field: $set, ..Self::default() }
        }
    )*};
}

/// The start of an invocation; without any field it begins a new session.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentInit {
    /// Resumes this session at its tip, or begins it under this id. Server-managed agents only.
    pub session_id: Option<SessionId>,
    /// Resumes exactly this snapshot. Server-managed agents only.
    pub snapshot_id: Option<SnapshotId>,
    /// Resumes the state that the client kept. Client-managed agents only.
    pub state: Option<SessionState>,
    /// The prompt input of the conversation, set when the conversation begins. From clients only the fields
    /// that the agent [allows](crate::ClientPermissions::prompt_input), merged over the agent's own input.
    pub prompt_input: Option<Value>,
    /// The custom state of a session that begins; refused for one that exists.
    pub custom: Option<GivenCustom>,
}

impl AgentInit {
    with_one_field! {
        /// Resumes a session at its tip, or begins it under this id.
        pub fn session(session: impl Into<SessionId>) { session_id: Some(session.into()) }

        /// Resumes exactly this snapshot.
        pub fn snapshot(snapshot: impl Into<SnapshotId>) { snapshot_id: Some(snapshot.into()) }

        /// Resumes the state that the client kept.
        pub fn state(state: SessionState) { state: Some(state) }
    }

    everturn_core::setters! {
        /// Sets the prompt input.
        pub fn with_prompt_input(mut self, input: impl Into<Value>) { self.prompt_input = Some(input.into()) }

        /// The same start, with the custom state of a session that begins.
        pub fn with_custom(mut self, custom: impl Into<Value>) { self.custom = Some(GivenCustom::new(custom)) }
    }

    /// Returns the start as a client sends it to a server.
    ///
    /// The custom state of a new session goes into a `state` with nothing else in it, which servers of all
    /// languages accept, unless the caller names the session.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the context has [overrides](crate::ChatBuilder::overrides) or [`Unstored`],
    /// which are Rust values and cannot be sent.
    pub fn as_sent(self, context: &Context) -> Result<Self> {
        let overrides = context.extension::<PromptOverrides>();
        if overrides.is_some_and(|overrides| !overrides.is_empty()) {
            return Err(Error::invalid_argument(
                "overrides cannot be sent to an agent on another server: they are for agents of this process",
            ));
        }
        if context.extension::<Unstored>().is_some() {
            return Err(Error::invalid_argument(
                "a remote agent cannot run without storing: that is for agents of this process",
            ));
        }
        Ok(match self.custom {
            Some(custom) if self.session_id.is_none() && self.state.is_none() => Self {
                state: Some(SessionState {
                    custom: Some(custom.into_value()),
                    ..SessionState::default()
                }),
                custom: None,
                ..self
            },
            custom => Self { custom, ..self },
        })
    }

    /// Refuses an init that cannot start any invocation, before an agent runs.
    pub(crate) fn check(&self) -> Result<()> {
        let empty =
            |what: &str| Err(Error::invalid_argument(format!("the {what} id is empty")).with_public());
        if self.session_id.as_ref().is_some_and(|id| id.as_str().is_empty()) {
            return empty("session");
        }
        if self.snapshot_id.as_ref().is_some_and(|id| id.as_str().is_empty()) {
            return empty("snapshot");
        }
        self.check_sources()
    }

    /// Checks that the init names one source of state.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if both a state and an id are given, or a custom state together with a state or a
    /// snapshot.
    pub(crate) fn check_sources(&self) -> Result<()> {
        if self.state.is_some() && (self.session_id.is_some() || self.snapshot_id.is_some()) {
            return Err(Error::invalid_argument(
                "'state' is given with 'sessionId' or 'snapshotId': a conversation starts from one or the other",
            )
            .with_public());
        }
        if self.custom.is_some() && self.state.is_some() {
            return Err(Error::invalid_argument(
                "'custom' is given with 'state', which has a custom state of its own",
            )
            .with_public());
        }
        if let (Some(_), Some(snapshot)) = (&self.custom, &self.snapshot_id) {
            return Err(Error::invalid_argument(format!(
                "'custom' is for new sessions, and snapshot '{snapshot}' is of an existing one: omit it"
            ))
            .with_public());
        }
        Ok(())
    }
}

/// The result of an agent's function; `O` is the type of its value besides the answer.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentResult<O = Value> {
    /// The answer.
    pub message: Option<Message>,
    /// The artifacts of the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// The reason for the end of the invocation, if it differs from the last turn's.
    pub finish_reason: Option<AgentFinishReason>,
    /// A value of the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<O>,
}

/// The result of a function without a value.
impl Default for AgentResult {
    fn default() -> Self {
        Self {
            message: None,
            artifacts: Vec::new(),
            finish_reason: None,
            output: None,
        }
    }
}

impl<P> AgentResult<P> {
    /// The same result with a value of the agent's own, which callers read with
    /// [`AgentReply::value`](crate::AgentReply::value).
    ///
    /// ```
    /// use everturn_agent::{Agent, AgentSession, custom_agent};
    /// # use everturn_core::{Registry, Result};
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    /// # use serde_json::Value;
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    /// struct Bill {
    ///     cents: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// let waiter = custom_agent(&registry, "waiter", |session: AgentSession| async move {
    ///     session.run(|_turn| async { Ok(()) }).await?;
    ///     Ok(session.result().with_output(Bill { cents: 1250 }))
    /// })
    /// .define()?;
    ///
    /// assert_eq!(waiter.run_text("The bill, please.").await?.value()?, Some(Bill { cents: 1250 }));
    /// # Ok(()) }
    /// ```
    pub fn with_output<O>(self, output: O) -> AgentResult<O> {
        self.replacing(Some(output))
    }

    fn replacing<O>(self, output: Option<O>) -> AgentResult<O> {
        AgentResult {
            message: self.message,
            artifacts: self.artifacts,
            finish_reason: self.finish_reason,
            output,
        }
    }
}

impl<O: Serialize> AgentResult<O> {
    /// # Errors
    /// `INTERNAL` if the value cannot be written as JSON.
    pub(crate) fn untyped(self) -> Result<AgentResult> {
        let output = self.output.as_ref().map(serde_json::to_value).transpose();
        let output = output.map_err(|error| Error::from(error).context("the agent's output"))?;
        Ok(self.replacing(output))
    }
}

/// The output of an invocation.
#[wire]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentOutput {
    /// The session's id.
    pub session_id: Option<SessionId>,
    /// The snapshot to resume: the last committed one, that of a turn which failed and was kept, or the
    /// pending snapshot of a detached run. Server-managed agents only.
    pub snapshot_id: Option<SnapshotId>,
    /// The ids of all snapshots of the invocation, in order. Only from agents with a
    /// [policy](crate::AgentBuilder::snapshots) other than the default.
    pub snapshot_ids: Option<Vec<SnapshotId>>,
    /// The state to resume, which the client keeps. Client-managed agents only.
    pub state: Option<SessionState>,
    /// The answer.
    pub message: Option<Message>,
    /// The artifacts of the reply.
    pub artifacts: Option<Vec<Artifact>>,
    /// The reason for the end of the invocation, if one was given.
    pub finish_reason: Option<AgentFinishReason>,
    /// The error of a failed invocation.
    pub error: Option<RuntimeError>,
    /// A value of the agent's own, if its function returned one.
    pub output: Option<Value>,
    /// The usage of the invocation's models and tools, if it called any.
    pub usage: Option<UsageTotal>,
}

impl AgentOutput {
    /// Returns whether the invocation failed, or was stopped before its end.
    pub fn is_failure(&self) -> bool {
        match self.finish_reason {
            Some(AgentFinishReason::Failed) => true,
            Some(AgentFinishReason::Aborted) => self.error.is_some(),
            _ => false,
        }
    }
}

/// One chunk of an agent's stream.
#[wire]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentStreamChunk {
    /// A chunk of the model's answer.
    pub model_chunk: Option<ModelResponseChunk>,
    /// The place, among the session's messages, of the message that the model's chunk is part of. Only if
    /// [`TurnDetails`](crate::TurnDetails) were requested, and in background runs.
    pub position: Option<usize>,
    /// The start of a turn. Only if [`TurnDetails`](crate::TurnDetails) were requested.
    pub turn_start: Option<TurnStarted>,
    /// A change of the custom state; pointers are rooted at the custom document.
    pub custom_patch: Option<JsonPatch>,
    /// An artifact that was added or replaced.
    pub artifact: Option<Artifact>,
    /// The agent's activity, in a type of the agent's own.
    pub status: Option<Value>,
    /// A snapshot that was taken. Only from agents with a [policy](crate::AgentBuilder::snapshots) other than
    /// the default.
    pub snapshot_created: Option<SnapshotCreated>,
    /// Whether another worker took the background run over. It restarts the turn in progress, so the chunks
    /// of this turn so far do not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
    /// The end of the turn.
    pub turn_end: Option<TurnEnd>,
}

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotCreated {
    /// The snapshot's id. It can be read as soon as this arrives.
    pub snapshot_id: SnapshotId,
    /// The event at which it was taken.
    pub event: SnapshotEvent,
}

/// The start of a turn.
#[wire]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnStarted {
    /// The session.
    pub session_id: SessionId,
    /// The snapshot that will hold the turn, if its id is known already; see
    /// [`TurnContext::snapshot_id`](crate::TurnContext::snapshot_id).
    pub snapshot_id: Option<SnapshotId>,
    /// The number of the session's messages before the turn.
    pub position: usize,
}

/// The messages that a turn added to its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddedMessages {
    /// The place of the first one among the session's messages.
    pub position: usize,
    /// The messages: the user's, then those of the model and its tools.
    pub messages: Vec<Message>,
}

/// The end of a turn.
#[wire]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TurnEnd {
    /// The snapshot that holds the turn, or what a turn that failed had committed. It can be read as soon as
    /// this arrives.
    pub snapshot_id: Option<SnapshotId>,
    /// The reason for the end of the turn, if one was given.
    pub finish_reason: Option<AgentFinishReason>,
    /// The usage of the turn's models and tools, if it called any.
    pub usage: Option<UsageTotal>,
    /// The messages that the turn added. Only if [`TurnDetails`](crate::TurnDetails) were requested.
    pub added: Option<AddedMessages>,
}

impl AgentStreamChunk {
    with_one_field! {
        /// Creates a chunk with a chunk of the model.
        pub fn model(chunk: ModelResponseChunk) { model_chunk: Some(chunk) }

        /// Creates a chunk that begins a turn.
        pub fn turn_start(turn_start: TurnStarted) { turn_start: Some(turn_start) }
    }

    /// The same chunk, as part of the message at this place of the session.
    pub fn at(self, position: Option<usize>) -> Self {
        Self { position, ..self }
    }

    with_one_field! {
        /// Creates a chunk with a change of the custom state.
        pub fn patch(patch: JsonPatch) { custom_patch: Some(patch) }

        /// Creates a chunk with an artifact.
        pub fn artifact(artifact: Artifact) { artifact: Some(artifact) }

        /// Creates a chunk with a status of the agent.
        pub fn status(status: Value) { status: Some(status) }

        /// Creates a chunk that reports a snapshot.
        pub fn snapshot_created(snapshot: SnapshotCreated) { snapshot_created: Some(snapshot) }
    }

    /// Creates a chunk that reports a takeover of the background run.
    pub fn taken_over() -> Self {
        Self {
            taken_over: true,
            ..Self::default()
        }
    }

    /// Creates a chunk that ends a turn.
    pub fn turn_end(turn_end: TurnEnd) -> Self {
        Self {
            turn_end: Some(turn_end),
            ..Self::default()
        }
    }
}

/// Where the state is kept between invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateManagement {
    /// In the agent's store.
    Server,
    /// By the client.
    Client,
}

/// The description of an agent in a listing, under the metadata key `agent`.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentMetadata {
    /// Where the state is kept.
    pub state_management: StateManagement,
    /// Whether a background run can be aborted.
    pub abortable: bool,
    /// The schema of the custom state.
    pub state_schema: Option<Value>,
    /// The schema of the status that the agent streams, if it declares one.
    pub status_schema: Option<Value>,
    /// The schema of the value that the agent's function returns, if it returns one of a type.
    pub output_schema: Option<Value>,
}

/// A request for a snapshot: by its id, or the latest of a session; with both, the snapshot must belong to
/// the session.
///
/// Fields unknown to this version are ignored, as in all requests of Genkit's companion actions.
#[wire]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetSnapshotRequest {
    /// The snapshot.
    pub snapshot_id: Option<SnapshotId>,
    /// The session.
    pub session_id: Option<SessionId>,
    /// Whether the snapshot is read without its state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metadata_only: bool,
    /// With a session, whether to read the state from which its next turn continues, although its last turns
    /// may have no snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub head: bool,
}

impl GetSnapshotRequest {
    with_one_field! {
        /// Asks for the snapshot with this id.
        pub fn snapshot(id: impl Into<SnapshotId>) { snapshot_id: Some(id.into()) }

        /// Asks for the latest snapshot of a session.
        pub fn latest(session: impl Into<SessionId>) { session_id: Some(session.into()) }
    }

    /// Asks for the state from which the next turn of a session continues.
    pub fn head(session: impl Into<SessionId>) -> Self {
        Self {
            head: true,
            ..Self::latest(session)
        }
    }
}

/// A request to abort a background run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbortRequest {
    /// The run's pending snapshot.
    pub snapshot_id: SnapshotId,
}

/// The outcome of an abort.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbortResponse {
    /// The run's snapshot.
    pub snapshot_id: SnapshotId,
    /// The status of the run's snapshot after the abort; before it, from some other servers.
    pub status: Option<SnapshotStatus>,
}

/// The custom state that a caller gives to a new session.
///
/// An agent that keeps its sessions takes it from clients only if it
/// [allows](crate::ClientPermissions::custom) that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GivenCustom(Arc<Value>);

impl GivenCustom {
    /// Creates the custom state of a new session.
    pub fn new(value: impl Into<Value>) -> Self {
        Self(Arc::new(value.into()))
    }

    /// Returns the custom state.
    pub fn value(&self) -> &Arc<Value> {
        &self.0
    }

    pub(super) fn into_value(self) -> Arc<Value> {
        self.0
    }
}

impl From<Arc<Value>> for GivenCustom {
    fn from(value: Arc<Value>) -> Self {
        Self(value)
    }
}

impl JsonSchema for GivenCustom {
    fn schema_name() -> Cow<'static, str> {
        "CustomState".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        Schema::from(true)
    }
}

/// Makes an invocation store nothing, also on an agent with a store; an extension of the context.
///
/// The agent runs on the state that the caller gives, as agents without a store do, or on the session or
/// snapshot that the init names. Either way no snapshot is written, the session is not locked, and the work
/// cannot be detached.
///
/// The caller answers for the state: an agent with a store refuses one from clients, because they could forge
/// the agent's messages.
///
/// ```
/// use std::sync::Arc;
///
/// use everturn_agent::store::MemoryStore;
/// use everturn_agent::{AgentSession, Unstored, custom_agent};
/// use everturn_core::{Context, Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let registry = Registry::new();
/// let chef = custom_agent(&registry, "chef", |session: AgentSession| async move {
///     session.run(|_turn| async { Ok(()) }).await?;
///     Ok(session.result())
/// })
/// .store(MemoryStore::new())
/// .define()?;
///
/// let context = Context::new().with_extension(Arc::new(Unstored));
/// let reply = chef.chat().context(context).run("Something with leeks?").await?;
///
/// assert_eq!(reply.snapshot_id(), None);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unstored;

/// Adds details to the stream of an invocation; an extension of the context.
///
/// Each turn begins with a chunk whose [`turn_start`](crate::AgentStreamChunk::turn_start) names the snapshot
/// that will hold the turn, chunks of the model have a [`position`](crate::AgentStreamChunk::position), and
/// the turn's end has the messages that the turn [added](crate::TurnEnd::added). So a server of another
/// protocol can name each message before its first chunk, and find the message again by that name.
///
/// An agent around a prompt sends an empty chunk when it first asks its model or runs a tool: it has accepted
/// the input. A turn that ends before any chunk but its start was refused, and nothing ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnDetails;

/// A note that the snapshots of an invocation keep, also the pending one of a background run; an extension of
/// the context.
///
/// A server of another protocol stores data there that it must send again later, and reads it with
/// [`Snapshot::server_note`](crate::Snapshot::server_note). No model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerNote(pub Value);

/// Makes an invocation that names a session start a new conversation next to what the session holds; an
/// extension of the context.
///
/// So a client can edit or repeat the very first message of a session. On an agent with a store the turn
/// becomes a branch from the session's beginning, and its snapshot the session's tip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConversation;

/// Identifies a call, so that a repetition of it is recognised; an extension of the context.
///
/// The snapshot of the call's turn records the key, if the agent has a store. A further call of the session
/// with the same key and the same input returns the stored turn and runs nothing, so a caller that received
/// no answer can repeat its call. A turn that failed or was not stored is run.
///
/// The last four calls of a branch are recognised. The key is for the first turn of one invocation: agents
/// that it calls have none, and a call with several inputs is recognised by its first.
///
/// A server uses the header `Idempotency-Key` of a request, or else the request's id.
///
/// ```
/// use std::sync::Arc;
///
/// use everturn_agent::store::MemoryStore;
/// use everturn_agent::{AgentSession, IdempotencyKey, custom_agent};
/// use everturn_core::{Context, Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let registry = Registry::new();
/// let chef = custom_agent(&registry, "chef", |session: AgentSession| async move {
///     session.run(|_turn| async { Ok(()) }).await?;
///     Ok(session.result())
/// })
/// .store(MemoryStore::new())
/// .define()?;
///
/// let order = async || {
///     let context = Context::new().with_extension(Arc::new(IdempotencyKey::new("order-17")));
///     chef.chat().resume("dinner").context(context).run("Leeks, please.").await
/// };
/// let (first, repeated) = (order().await?, order().await?);
///
/// assert_eq!(first.snapshot_id(), repeated.snapshot_id());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Creates a key, which should be random or otherwise used for one call only.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
