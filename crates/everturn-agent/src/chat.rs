//! Chats: a client's handle on a session of many turns, and the connection between a chat and its agent.
//!
//! Chats, turns, tasks and interrupts are implemented once, on top of [`AgentTransport`], for agents of this
//! process and of other machines. The conformance cases run over both.

mod chat_turn;
mod chunk;
pub(crate) mod connection;
mod reply;
mod task;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use everturn_ai::prompt::PromptOverrides;
use everturn_ai::{Answers, History};
use everturn_core::{Connection, Context, Emitter, Error, Result};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

pub use self::chat_turn::ChatTurn;
use self::chat_turn::HeldChat;
pub use self::chunk::AgentChunk;
pub use self::connection::{AgentConnection, TurnChunks};
pub(crate) use self::reply::output_of;
pub use self::reply::{AgentReply, Interrupt};
pub use self::task::{AgentTask, RunWatch};
use crate::chat::connection::CustomView;
use crate::policy::visibility::SNAPSHOT_NOT_FOUND;
use crate::runs::run_stream::RunChunks;
use crate::storage::artifact::put;
use crate::storage::session_state::AgentTypes;
use crate::store::StatusStream;
use crate::{
    AgentFinishReason, AgentInit, AgentInput, AgentOutput, AgentStreamChunk, Artifact, CustomState,
    GetSnapshotRequest, GivenCustom, SessionId, SessionState, Snapshot, SnapshotId, SnapshotStatus,
    StateManagement,
};

/// The settings of a chat before it is opened. A setting that is given again replaces the earlier one.
#[must_use = "a chat exists once it is opened"]
pub struct ChatBuilder<S, T = Value, O = Value> {
    agent: Arc<dyn AgentTransport>,
    init: AgentInit,
    context: Option<Context>,
    overrides: Option<Arc<PromptOverrides>>,
    /// The error of a custom state that could not be written as JSON.
    problem: Option<Error>,
    types: AgentTypes<S, T, O>,
}

impl<S: CustomState, T, O> ChatBuilder<S, T, O> {
    /// Creates a builder for a chat with the agent that `agent` reaches.
    pub fn new(agent: Arc<dyn AgentTransport>) -> Self {
        Self {
            agent,
            init: AgentInit::default(),
            context: None,
            overrides: None,
            problem: None,
            types: PhantomData,
        }
    }

    everturn_core::setters! {
        /// Resumes a session at its tip, or begins it under this id.
        pub fn resume(mut self, session: impl Into<SessionId>) { self.init.session_id = Some(session.into()) }

        /// Resumes exactly this snapshot; resuming an older one begins a branch.
        pub fn snapshot(mut self, snapshot: impl Into<SnapshotId>) { self.init.snapshot_id = Some(snapshot.into()) }
    }

    /// Resumes a state that the client kept, in place of [`ChatBuilder::custom`].
    pub fn state(mut self, state: SessionState) -> Self {
        self.init.state = Some(state);
        self.init.custom = None;
        self.problem = None;
        self
    }

    /// Begins a new session with this custom state, in place of [`ChatBuilder::state`] and of the agent's
    /// [own initial one](crate::AgentBuilder::initial_custom).
    ///
    /// A session that exists refuses it. An agent on another server that keeps its sessions has to
    /// [allow](crate::ClientPermissions::custom) it.
    ///
    /// ```
    /// # use everturn_agent::{AgentSession, custom_agent, store::MemoryStore};
    /// # use everturn_core::{Registry, Result, Status};
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
    /// struct Kitchen {
    ///     pantry: Vec<String>,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// # let chef = custom_agent(&registry, "chef", |session: AgentSession<Kitchen>| async move {
    /// #     session.run(|_turn| async { Ok(()) }).await?;
    /// #     Ok(session.result())
    /// # })
    /// # .store(MemoryStore::new())
    /// # .define()?;
    /// let stocked = Kitchen { pantry: vec!["leeks".into()] };
    ///
    /// chef.chat().resume("monday").custom(stocked.clone()).run("Something with leeks?").await?;
    ///
    /// let chat = chef.chat().resume("monday").open().await?;
    /// assert_eq!(chat.custom()?.pantry, ["leeks"]);
    /// let refused = chef.chat().resume("monday").custom(stocked).run("And without butter?").await;
    /// assert_eq!(refused.unwrap_err().status(), Status::FailedPrecondition);
    /// # Ok(()) }
    /// ```
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the state is the chat's from here on"
    )]
    pub fn custom(mut self, custom: S) -> Self {
        self.init.state = None;
        match serde_json::to_value(&custom) {
            Ok(custom) => {
                self.init.custom = Some(GivenCustom::new(custom));
                self.problem = None;
            }
            Err(error) => self.problem = Some(error.into()),
        }
        self
    }

    everturn_core::setters! {
        /// Sets settings that go before those of the agent and of its prompt in every turn of this chat:
        /// another model, other tools.
        ///
        /// Only for agents of this process that are around a prompt. A background run that another worker
        /// takes over continues without them.
        pub fn overrides(mut self, overrides: PromptOverrides) { self.overrides = Some(Arc::new(overrides)) }

        /// Sets the prompt input of the whole conversation.
        pub fn prompt_input(mut self, input: impl Into<Value>) { self.init.prompt_input = Some(input.into()) }

        /// Sets the context of every turn; the default is the context in which the chat is opened. A
        /// [`Principal`](everturn_core::Principal) is converted to its context: the chat is held on its
        /// behalf.
        pub fn context(mut self, context: impl Into<Context>) { self.context = Some(context.into()) }
    }

    fn check(&self) -> Result<()> {
        match &self.problem {
            Some(problem) => Err(problem.clone()),
            None => self.init.check(),
        }
    }

    /// Opens the chat. A resumed session is read first, so that its messages, artifacts and custom state are
    /// known.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id and for both a state and an id; `NOT_FOUND` for a snapshot that
    /// does not exist; the errors of reading.
    pub async fn open(self) -> Result<Chat<S, T, O>> {
        let mut chat = self.unread()?;
        chat.read().await?;
        Ok(chat)
    }

    /// Opens the chat, runs one turn and returns the reply.
    ///
    /// # Errors
    /// As [`ChatBuilder::open`], without reading first; the error of the turn.
    pub async fn run(self, input: impl Into<AgentInput>) -> Result<AgentReply<S, O>> {
        self.unread()?.run(input).await
    }

    /// Opens the chat, starts one turn and streams it: chunks, then the [reply](ChatTurn::output).
    ///
    /// # Errors
    /// As [`ChatBuilder::open`], without reading first. Every other failure is the turn's: see [`ChatTurn`].
    pub async fn stream(self, input: impl Into<AgentInput>) -> Result<ChatTurn<'static, S, T, O>>
    where
        T: 'static,
        O: 'static,
    {
        Ok(self.unread()?.into_turn(input.into()).await)
    }

    /// Opens the chat without reading it.
    fn unread(self) -> Result<Chat<S, T, O>> {
        self.check()?;
        let context = self.context.unwrap_or_else(Context::current);
        let context = match self.overrides {
            Some(overrides) => context.with_extension(overrides),
            None => context,
        };
        Ok(Chat::new(self.agent, self.init, context))
    }
}

/// A client's handle on a session. Each turn is a separate invocation that starts where the last one ended,
/// so the chat can be dropped and the session resumed at any time.
///
/// Between turns the chat holds the session's snapshot, messages, artifacts and custom state. With an agent
/// that keeps the conversation itself, `messages` holds the messages of this chat's turns; [`Chat::read`]
/// gets all of the session's.
pub struct Chat<S = Value, T = Value, O = Value> {
    agent: Arc<dyn AgentTransport>,
    context: Context,
    /// The start of the first turn.
    init: AgentInit,
    snapshot_id: Option<SnapshotId>,
    session_id: Option<SessionId>,
    /// The state that the client keeps, for an agent without a store.
    kept: Option<SessionState>,
    messages: History,
    artifacts: Vec<Artifact>,
    custom: CustomView,
    types: AgentTypes<S, T, O>,
}

impl<S: CustomState, T, O> Chat<S, T, O> {
    fn new(agent: Arc<dyn AgentTransport>, init: AgentInit, context: Context) -> Self {
        let mut chat = Self {
            agent,
            context,
            snapshot_id: init.snapshot_id.clone(),
            session_id: init.session_id.clone(),
            kept: init.state.clone(),
            messages: History::new(),
            artifacts: Vec::new(),
            custom: CustomView::new(init.custom.as_ref().map(|custom| Arc::clone(custom.value()))),
            init,
            types: PhantomData,
        };
        if let Some(state) = chat.kept.clone() {
            chat.show(&state);
        }
        chat
    }

    /// Reads the session's messages, artifacts and custom state, if the agent keeps them and the session has
    /// begun.
    ///
    /// # Errors
    /// The store's error; `NOT_FOUND` if the snapshot that the chat is at was deleted.
    pub async fn read(&mut self) -> Result<()> {
        if self.snapshot_id.is_none() && (self.session_id.is_none() || self.kept.is_some()) {
            return Ok(());
        }
        let request = GetSnapshotRequest {
            snapshot_id: self.snapshot_id.clone(),
            session_id: self.session_id.clone(),
            head: self.snapshot_id.is_none(),
            ..GetSnapshotRequest::default()
        };
        match self.agent.snapshot(request, self.context.clone()).await {
            Ok(snapshot) => {
                self.snapshot_id = Some(snapshot.snapshot_id);
                self.session_id = snapshot.session_id.or_else(|| self.session_id.clone());
                self.show(&snapshot.state.unwrap_or_default());
                Ok(())
            }
            // A session without snapshots begins with the first turn.
            Err(error) if error.is(SNAPSHOT_NOT_FOUND) && self.snapshot_id.is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn show(&mut self, state: &SessionState) {
        self.messages = state.messages.clone();
        self.artifacts = state.artifacts.to_vec();
        self.custom = CustomView::new(state.custom.clone());
        if state.session_id.is_some() {
            self.session_id.clone_from(&state.session_id);
        }
    }

    /// Returns the start of the next turn.
    fn next_init(&self) -> AgentInit {
        if let Some(snapshot_id) = &self.snapshot_id {
            return AgentInit {
                snapshot_id: Some(snapshot_id.clone()),
                ..AgentInit::default()
            };
        }
        match &self.kept {
            Some(state) => AgentInit {
                state: Some(state.clone()),
                prompt_input: self.init.prompt_input.clone(),
                ..AgentInit::default()
            },
            None => self.init.clone(),
        }
    }

    /// Starts a turn on a text, a message, or answers to interrupts.
    ///
    /// # Errors
    /// If the input cannot be sent. Every other failure is the turn's: see [`ChatTurn`].
    pub async fn send(&mut self, input: impl Into<AgentInput>) -> Result<ChatTurn<'_, S, T, O>> {
        let input = input.into();
        let connection = self.invoke(&input).await;
        Ok(ChatTurn::new(HeldChat::Borrowed(self), input, connection))
    }

    /// Starts a turn and gives the chat to it.
    async fn into_turn(self, input: AgentInput) -> ChatTurn<'static, S, T, O>
    where
        T: 'static,
        O: 'static,
    {
        let connection = self.invoke(&input).await;
        ChatTurn::new(HeldChat::Owned(Box::new(self)), input, connection)
    }

    async fn invoke(&self, input: &AgentInput) -> Connection<AgentInput, AgentOutput, AgentStreamChunk> {
        let connection = self.agent.connect(self.next_init(), &self.context);
        // An invocation that was refused takes no input; its output holds the reason.
        let _ = connection.send(input.clone()).await;
        connection.close();
        connection
    }

    /// Starts a turn that answers interrupts, with the parts that [`Interrupt::respond`] and
    /// [`Interrupt::restart`] make.
    ///
    /// # Errors
    /// As [`Chat::send`].
    pub async fn answer(&mut self, answers: impl Into<Answers>) -> Result<ChatTurn<'_, S, T, O>> {
        self.send(answers.into()).await
    }

    /// Goes on with the last turn, which failed and was [kept](crate::FailedTurns::Keep): the agent answers
    /// the message that it did not answer, and repeats nothing that it had done.
    ///
    /// # Errors
    /// As [`Chat::send`].
    pub async fn retry(&mut self) -> Result<ChatTurn<'_, S, T, O>> {
        self.send(AgentInput::default()).await
    }

    /// Runs one turn and returns the reply.
    ///
    /// # Errors
    /// The error of a turn that was refused, cut short or failed; [`AgentReply::of`] finds the reply of a
    /// failed one.
    pub async fn run(&mut self, input: impl Into<AgentInput>) -> Result<AgentReply<S, O>> {
        let input = input.into();
        let custom = Arc::new(Mutex::new(self.custom.clone()));
        let view = Arc::clone(&custom);
        let emitter = Emitter::new(move |chunk| {
            view.lock().take_in(&chunk);
            std::future::ready(Ok(()))
        });
        let output = self
            .agent
            .run(self.next_init(), input.clone(), emitter, &self.context)
            .await;
        self.custom.clone_from(&custom.lock());
        self.conclude(&input, output)
    }

    /// Starts a background run on an input.
    ///
    /// The chat continues from the run's last snapshot: until the run has ended, the next turn is refused.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the agent cannot work in the background; as [`Chat::run`].
    pub async fn detach(&mut self, input: impl Into<AgentInput>) -> Result<AgentTask<S, T, O>> {
        let reply = self.run(input.into().detached()).await?;
        match reply.snapshot_id() {
            Some(id) if reply.finish_reason() == AgentFinishReason::Detached => Ok(AgentTask::new(
                Arc::clone(&self.agent),
                self.context.clone(),
                id.clone(),
            )),
            _ => Err(Error::internal(
                "the agent finished without going to the background",
            )),
        }
    }

    /// Applies the output of a turn to the chat.
    fn conclude(&mut self, input: &AgentInput, output: Result<AgentOutput>) -> Result<AgentReply<S, O>> {
        let output = output?;
        if output.session_id.is_some() {
            self.session_id.clone_from(&output.session_id);
        }
        let moved = output.snapshot_id.is_some() && output.snapshot_id != self.snapshot_id;
        if moved {
            self.snapshot_id.clone_from(&output.snapshot_id);
        }
        if let Some(state) = &output.state {
            self.kept = Some(state.clone());
            self.show(state);
        // A failed turn is not part of the session, so the chat stays where it was.
        } else if !output.is_failure() {
            self.messages
                .extend(input.message.clone().into_iter().chain(output.message.clone()));
            output
                .artifacts
                .iter()
                .flatten()
                .for_each(|artifact| put(&mut self.artifacts, artifact.clone()));
        } else if moved {
            // The turn failed and was kept, with its message.
            self.messages.extend(input.message.clone());
        }
        AgentReply::from_output(output)
    }

    /// Returns the id of the snapshot that the next turn starts from; `None` if the session has not begun or
    /// the client keeps it.
    pub fn snapshot_id(&self) -> Option<&SnapshotId> {
        self.snapshot_id.as_ref()
    }

    /// Returns the id of the session; `None` if it has not begun.
    pub fn session_id(&self) -> Option<&SessionId> {
        self.session_id.as_ref()
    }

    /// Returns the state that the client keeps; `None` if the agent keeps it.
    pub fn state(&self) -> Option<&SessionState> {
        self.kept.as_ref()
    }

    /// Returns the messages.
    pub fn messages(&self) -> &History {
        &self.messages
    }

    /// Returns the artifacts.
    pub fn artifacts(&self) -> &[Artifact] {
        &self.artifacts
    }

    /// Returns the custom state, with the changes of a turn in progress; the default if it is not known.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the custom state that the agent shows is not an `S`.
    pub fn custom(&self) -> Result<S> {
        self.custom.decode()
    }
}

everturn_core::opaque_debug!(Chat<S, T, O>, session_id, snapshot_id);

/// The outcome of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// The status of the run's snapshot before the abort.
    pub previous: SnapshotStatus,
    /// The status of the run's snapshot after the abort.
    pub status: SnapshotStatus,
}

/// A connection between a chat and an agent, in this process or on another machine.
pub trait AgentTransport: Send + Sync + 'static {
    /// Opens an invocation.
    fn connect(
        &self,
        init: AgentInit,
        context: &Context,
    ) -> Connection<AgentInput, AgentOutput, AgentStreamChunk>;

    /// Runs an invocation of one input and sends its chunks to `emitter`. Dropping the future cancels the
    /// work.
    ///
    /// A transport in this process does the work in the caller's task; by default it is done over a
    /// [connection](AgentTransport::connect).
    fn run(
        &self,
        init: AgentInit,
        input: AgentInput,
        emitter: Emitter<AgentStreamChunk>,
        context: &Context,
    ) -> BoxFuture<'static, Result<AgentOutput>> {
        let mut connection = self.connect(init, context);
        Box::pin(async move {
            // An invocation that was refused takes no input; its output holds the reason.
            let _ = connection.send(input).await;
            connection.close();
            let mut chunks = connection.receive();
            while let Some(chunk) = chunks.next().await {
                emitter.send(chunk).await?;
            }
            connection.into_output().await
        })
    }

    /// Reads a snapshot.
    ///
    /// Fails with `NOT_FOUND` if there is none.
    fn snapshot(&self, request: GetSnapshotRequest, context: Context) -> BoxFuture<'_, Result<Snapshot>>;

    /// Aborts a background run; `None` if the run does not exist.
    fn abort(&self, id: SnapshotId, context: Context) -> BoxFuture<'_, Result<Option<Abort>>>;

    /// Streams the statuses of a background run as they change; `None` if the transport cannot, and the run
    /// is then polled.
    fn watch(&self, id: &SnapshotId, context: &Context) -> Option<StatusStream> {
        let _ = (id, context);
        None
    }

    /// Streams the chunks of a background run from its beginning to its end; `None` if the transport cannot.
    fn follow(&self, id: &SnapshotId, context: &Context) -> Option<RunChunks> {
        let _ = (id, context);
        None
    }

    /// Returns who keeps the agent's sessions; `None` if that is not known.
    fn state_management(&self) -> Option<StateManagement> {
        None
    }

    /// Returns how long an expired run may yet be taken over. After that time, waiting for the run fails.
    fn takeover_patience(&self) -> Duration {
        Duration::ZERO
    }
}
