//! A session for code that serves agents of any kind.

use std::fmt;
use std::sync::Arc;

use everturn_ai::History;
use everturn_core::{Context, Result};
use serde_json::Value;

use super::{Change, Core, Session};
use crate::{Artifact, CustomState, SessionId, SessionState};

/// A session seen without its type of custom state: what middleware and generic tools work with. Cloning is cheap.
#[derive(Clone)]
pub struct SessionHandle(Arc<dyn AnySession>);

trait AnySession: Send + Sync {
    fn session_id(&self) -> &SessionId;
    fn state(&self) -> SessionState;
    fn custom_json(&self) -> Arc<Value>;
    fn add_artifacts(&self, artifacts: Vec<Artifact>);
    fn change_again(&self, changes: &[Change]) -> Result<()>;
}

impl<S: CustomState> AnySession for Core<S> {
    fn session_id(&self) -> &SessionId {
        self.session_id()
    }

    fn state(&self) -> SessionState {
        self.state()
    }

    fn custom_json(&self) -> Arc<Value> {
        self.custom_json()
    }

    fn add_artifacts(&self, artifacts: Vec<Artifact>) {
        self.add_artifacts(artifacts);
    }

    fn change_again(&self, changes: &[Change]) -> Result<()> {
        self.change_again(changes)
    }
}

impl SessionHandle {
    pub(super) fn new<S: CustomState>(core: Arc<Core<S>>) -> Self {
        Self(core)
    }

    /// The session of the invocation this code runs in, if there is one.
    pub fn current() -> Option<Self> {
        Self::of(&Context::current())
    }

    /// The session of the invocation a context belongs to, if there is one.
    pub fn of(context: &Context) -> Option<Self> {
        context.extension::<Self>().map(|handle| Self::clone(&handle))
    }

    /// Which conversation this is.
    pub fn session_id(&self) -> &SessionId {
        self.0.session_id()
    }

    /// Everything the conversation is at this moment; shares, does not copy.
    pub fn state(&self) -> SessionState {
        self.0.state()
    }

    /// What was said so far; shares, does not copy.
    pub fn messages(&self) -> History {
        self.0.state().messages
    }

    /// The custom state as JSON, as prompts see it.
    pub fn custom_json(&self) -> Arc<Value> {
        self.0.custom_json()
    }

    /// What was made so far; shares, does not copy.
    pub fn artifacts(&self) -> Arc<Vec<Artifact>> {
        self.0.state().artifacts
    }

    /// Adds artifacts as [`Session::add_artifacts`] does.
    pub fn add_artifacts(&self, artifacts: impl IntoIterator<Item = Artifact>) {
        self.0.add_artifacts(artifacts.into_iter().collect());
    }

    /// Makes changes that were made before, by work that is not done again.
    pub(crate) fn change_again(&self, changes: &[Change]) -> Result<()> {
        self.0.change_again(changes)
    }

    /// What the agent's prompt is rendered with in this conversation, if anything was given.
    pub fn prompt_input(&self) -> Option<Arc<Value>> {
        self.0.state().prompt_input
    }
}

impl<S: CustomState> From<Session<S>> for SessionHandle {
    fn from(session: Session<S>) -> Self {
        session.handle()
    }
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionHandle").field(self.session_id()).finish()
    }
}
