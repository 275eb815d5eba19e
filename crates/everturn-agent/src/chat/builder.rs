//! Opening a chat.

use std::marker::PhantomData;
use std::sync::Arc;

use everturn_core::{Context, Error, Result};
use serde_json::Value;

use super::{AgentReply, AgentTransport, Chat};
use crate::{AgentInit, AgentInput, CustomState, SessionId, SessionState, SnapshotId};

/// The settings of a chat before it is opened. A setting that is given again replaces the earlier one.
#[must_use = "a chat exists once it is opened"]
pub struct ChatBuilder<S> {
    agent: Arc<dyn AgentTransport>,
    init: AgentInit,
    context: Option<Context>,
    /// The error of a custom state that could not be written as JSON.
    problem: Option<Error>,
    state: PhantomData<fn() -> S>,
}

impl<S: CustomState> ChatBuilder<S> {
    /// Creates a builder for a chat with the agent that `agent` reaches.
    pub fn new(agent: Arc<dyn AgentTransport>) -> Self {
        Self {
            agent,
            init: AgentInit::default(),
            context: None,
            problem: None,
            state: PhantomData,
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

    /// Resumes a state that the client kept.
    pub fn state(mut self, state: SessionState) -> Self {
        self.init.state = Some(state);
        self.problem = None;
        self
    }

    /// Begins with this custom state in place of [`ChatBuilder::state`]; for agents whose clients keep the state.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the state is the chat's from here on"
    )]
    pub fn custom(mut self, custom: S) -> Self {
        match serde_json::to_value(&custom) {
            Ok(custom) => self.state(SessionState {
                custom: Some(Arc::new(custom)),
                ..SessionState::default()
            }),
            Err(error) => {
                self.problem = Some(error.into());
                self
            }
        }
    }

    /// Sets the prompt input of the whole conversation.
    pub fn prompt_input(mut self, input: impl Into<Value>) -> Self {
        self.init.prompt_input = Some(input.into());
        self
    }

    /// Sets the context of every turn; the default is the context in which the chat is opened.
    pub fn context(mut self, context: Context) -> Self {
        self.context = Some(context);
        self
    }

    fn check(&self) -> Result<()> {
        match &self.problem {
            Some(problem) => Err(problem.clone()),
            None => self.init.check(),
        }
    }

    /// Opens the chat. A resumed session is read first, so that its messages, artifacts and custom state are known.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id and for a state beside an id; `NOT_FOUND` for a snapshot that does not exist;
    /// the errors of reading.
    pub async fn open(self) -> Result<Chat<S>> {
        self.check()?;
        let context = self.context.unwrap_or_else(Context::current);
        let mut chat = Chat::new(self.agent, self.init, context);
        chat.read().await?;
        Ok(chat)
    }

    /// Opens the chat, runs one turn and returns the reply.
    ///
    /// # Errors
    /// As [`ChatBuilder::open`], without reading first; the error of the turn.
    pub async fn run(self, input: impl Into<AgentInput>) -> Result<AgentReply<S>> {
        self.check()?;
        let context = self.context.unwrap_or_else(Context::current);
        let mut chat = Chat::new(self.agent, self.init, context);
        chat.send(input).await?.output().await
    }
}
