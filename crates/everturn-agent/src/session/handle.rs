//! A session without the type of its custom state.

use std::fmt;
use std::sync::Arc;

use everturn_ai::History;
use everturn_core::{Context, Result};
use serde_json::Value;

use super::{AnySession, Change, Core, Session};
use crate::{Artifact, CustomState, SessionId, SessionState};

/// A handle to a session without the type of its custom state, for middleware and generic tools. Cloning is
/// cheap.
#[derive(Clone)]
pub struct SessionHandle(Arc<dyn AnySession>);

impl SessionHandle {
    pub(super) fn new<S: CustomState>(core: Arc<Core<S>>) -> Self {
        Self(core)
    }

    /// Returns the session of the invocation in which the calling code runs, if there is one.
    pub fn current() -> Option<Self> {
        Self::of(&Context::current())
    }

    /// Returns the session of the invocation to which a context belongs, if there is one.
    pub fn of(context: &Context) -> Option<Self> {
        context.extension::<Self>().map(|handle| Self::clone(&handle))
    }

    /// Returns the id of the session.
    pub fn session_id(&self) -> &SessionId {
        self.0.session_id()
    }

    /// Returns the state of the session. It shares its content with the session instead of copying it.
    pub fn state(&self) -> SessionState {
        self.0.state()
    }

    /// Returns the messages so far. The history is shared, not copied.
    pub fn messages(&self) -> History {
        self.0.state().messages
    }

    /// Returns the custom state as JSON, as prompts see it: as its type writes it, the defaults included.
    pub fn custom_json(&self) -> Arc<Value> {
        self.0.custom_json()
    }

    /// Returns the artifacts so far. They are shared, not copied.
    pub fn artifacts(&self) -> Arc<Vec<Artifact>> {
        self.0.state().artifacts
    }

    /// Adds artifacts as [`Session::add_artifacts`] does.
    pub fn add_artifacts(&self, artifacts: impl IntoIterator<Item = Artifact>) {
        self.0.add_artifacts(artifacts.into_iter().collect());
    }

    /// Returns the live session, for the invocation that it belongs to.
    pub(crate) fn live(&self) -> &dyn AnySession {
        &*self.0
    }

    /// Makes recorded changes again, in place of the call that made them first.
    pub(crate) fn change_again(&self, changes: &[Change]) -> Result<()> {
        self.0.change_again(changes)
    }

    /// Returns a context in which code finds the session, with the type of its custom state and without.
    pub(crate) fn enter(&self, context: Context) -> Context {
        Arc::clone(&self.0).enter(context)
    }

    /// Returns the prompt input of this conversation, if it has one.
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
