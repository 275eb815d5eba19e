//! Opening a chat.

use std::marker::PhantomData;
use std::sync::Arc;

use everturn_ai::prompt::PromptOverrides;
use everturn_core::{Context, Error, Result};
use serde_json::Value;

use super::{AgentReply, AgentTransport, Chat, ChatTurn};
use crate::storage::session_state::AgentTypes;
use crate::{AgentInit, AgentInput, CustomState, GivenCustom, SessionId, SessionState, SnapshotId};

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

    /// Resumes a session at its tip, or begins it under this id.
    pub fn resume(mut self, session: impl Into<SessionId>) -> Self {
        self.init.session_id = Some(session.into());
        self
    }

    /// Resumes exactly this snapshot; resuming an older one begins a branch.
    pub fn snapshot(mut self, snapshot: impl Into<SnapshotId>) -> Self {
        self.init.snapshot_id = Some(snapshot.into());
        self
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

    /// Sets settings that go before those of the agent and of its prompt in every turn of this chat: another
    /// model, other tools.
    ///
    /// Only for agents of this process that are around a prompt. A background run that another worker takes
    /// over continues without them.
    pub fn overrides(mut self, overrides: PromptOverrides) -> Self {
        self.overrides = Some(Arc::new(overrides));
        self
    }

    /// Sets the prompt input of the whole conversation.
    pub fn prompt_input(mut self, input: impl Into<Value>) -> Self {
        self.init.prompt_input = Some(input.into());
        self
    }

    /// Sets the context of every turn; the default is the context in which the chat is opened. A
    /// [`Principal`](everturn_core::Principal) is converted to its context: the chat is held on its behalf.
    pub fn context(mut self, context: impl Into<Context>) -> Self {
        self.context = Some(context.into());
        self
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
