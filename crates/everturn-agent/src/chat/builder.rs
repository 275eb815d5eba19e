//! Where a chat starts.

use std::marker::PhantomData;
use std::sync::Arc;

use everturn_core::{Context, Error, Result};
use serde_json::Value;

use super::{AgentReply, AgentTransport, Chat};
use crate::{AgentInit, AgentInput, CustomState, SessionId, SessionState, SnapshotId};

/// What can be said about a chat before it is opened. Each thing may be said once; a second time is an error when the
/// chat is opened.
#[must_use = "a chat exists once it is opened"]
pub struct ChatBuilder<S> {
    agent: Arc<dyn AgentTransport>,
    init: AgentInit,
    context: Option<Context>,
    problem: Option<Error>,
    state: PhantomData<fn() -> S>,
}

impl<S: CustomState> ChatBuilder<S> {
    /// A chat with the agent at the other end of `agent`.
    pub fn new(agent: Arc<dyn AgentTransport>) -> Self {
        Self {
            agent,
            init: AgentInit::default(),
            context: None,
            problem: None,
            state: PhantomData,
        }
    }

    fn once<T>(mut self, what: &str, slot: impl FnOnce(&mut Self) -> &mut Option<T>, value: T) -> Self {
        if slot(&mut self).replace(value).is_some() {
            let repeated = || Error::invalid_argument(format!("the {what} of a chat was given twice"));
            self.problem.get_or_insert_with(repeated);
        }
        self
    }

    /// Resumes the latest point of a conversation, or begins it under this id.
    pub fn resume(self, session: impl Into<SessionId>) -> Self {
        self.once("session", |this| &mut this.init.session_id, session.into())
    }

    /// Resumes exactly here; going on from an older point makes a branch.
    pub fn snapshot(self, snapshot: impl Into<SnapshotId>) -> Self {
        self.once("snapshot", |this| &mut this.init.snapshot_id, snapshot.into())
    }

    /// Resumes from a state the client kept.
    pub fn state(self, state: SessionState) -> Self {
        self.once("state", |this| &mut this.init.state, state)
    }

    /// Begins with this custom state; for agents whose clients keep the state.
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
                self.problem.get_or_insert(error.into());
                self
            }
        }
    }

    /// What the agent's prompt is rendered with, for the whole conversation.
    pub fn prompt_input(self, input: impl Into<Value>) -> Self {
        self.once("prompt input", |this| &mut this.init.prompt_input, input.into())
    }

    /// The circumstances of every turn; the current ones if not said.
    pub fn context(self, context: Context) -> Self {
        self.once("context", |this| &mut this.context, context)
    }

    fn check(&self) -> Result<()> {
        match &self.problem {
            Some(problem) => Err(problem.clone()),
            None => self.init.check(),
        }
    }

    /// Opens the chat. One that is resumed is read first, so that its messages, artifacts and custom state are there.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id, for a state beside an id, and for anything said twice; `NOT_FOUND` for a
    /// snapshot that does not exist; what reading fails with.
    pub async fn open(self) -> Result<Chat<S>> {
        self.check()?;
        let context = self.context.unwrap_or_else(Context::current);
        let mut chat = Chat::new(self.agent, self.init, context);
        chat.read().await?;
        Ok(chat)
    }

    /// Opens the chat, runs one turn and gives the reply.
    ///
    /// # Errors
    /// As [`ChatBuilder::open`], without reading first; what the turn fails with.
    pub async fn run(self, input: impl Into<AgentInput>) -> Result<AgentReply<S>> {
        self.check()?;
        let context = self.context.unwrap_or_else(Context::current);
        let mut chat = Chat::new(self.agent, self.init, context);
        chat.send(input).await?.output().await
    }
}
