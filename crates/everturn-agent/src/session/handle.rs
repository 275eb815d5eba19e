//! A session without the type of its custom state.

use std::fmt;
use std::sync::Arc;

use everturn_ai::{History, Messages};
use everturn_core::{Context, Result};
use serde_json::Value;

use super::{Change, Core, Session};
use crate::{Artifact, CustomState, SessionId, SessionState};

/// A handle to a session without the type of its custom state, for middleware and generic tools. Cloning is
/// cheap.
#[derive(Clone)]
pub struct SessionHandle(Arc<dyn AnySession>);

/// A session during an invocation, whatever the type of its custom state. See [`Core`] for what the methods
/// do.
trait AnySession: Send + Sync {
    fn session_id(&self) -> &SessionId;
    fn state(&self) -> SessionState;
    fn custom_json(&self) -> Arc<Value>;
    fn add_artifacts(&self, artifacts: Vec<Artifact>);
    fn change_again(&self, changes: &[Change]) -> Result<()>;
    fn enter(self: Arc<Self>, context: Context) -> Context;
    fn reload(&self, state: SessionState) -> Result<()>;
    fn arm_patcher(&self);
    fn state_with(&self, conversation: Messages) -> SessionState;
    fn saved_ahead(&self, conversation: &History, named: &History);
    fn adopt_named(&self, saved: &History, named: &History);
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

    fn enter(self: Arc<Self>, context: Context) -> Context {
        context
            .with_extension(Arc::clone(&self))
            .with_extension(Arc::new(SessionHandle(self)))
    }

    fn reload(&self, state: SessionState) -> Result<()> {
        self.reload(state)
    }

    fn arm_patcher(&self) {
        self.arm_patcher();
    }

    fn state_with(&self, conversation: Messages) -> SessionState {
        self.state_with(conversation)
    }

    fn saved_ahead(&self, conversation: &History, named: &History) {
        self.saved_ahead(conversation, named);
    }

    fn adopt_named(&self, saved: &History, named: &History) {
        self.adopt_named(saved, named);
    }
}

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

    /// Makes recorded changes again, in place of the call that made them first.
    pub(crate) fn change_again(&self, changes: &[Change]) -> Result<()> {
        self.0.change_again(changes)
    }

    /// Returns a context in which code finds the session, with the type of its custom state and without.
    pub(crate) fn enter(&self, context: Context) -> Context {
        Arc::clone(&self.0).enter(context)
    }

    /// Replaces the state by another one of the same session.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if its custom state is not of the session's type.
    pub(crate) fn reload(&self, state: SessionState) -> Result<()> {
        self.0.reload(state)
    }

    /// Makes the next patch a whole document.
    pub(crate) fn arm_patcher(&self) {
        self.0.arm_patcher();
    }

    /// Returns the state in the middle of a turn, with a conversation that the session does not have yet.
    pub(crate) fn state_with(&self, conversation: Messages) -> SessionState {
        self.0.state_with(conversation)
    }

    /// Notes a snapshot inside the current turn: its conversation, without and with the snapshot's id in it.
    pub(crate) fn saved_ahead(&self, conversation: &History, named: &History) {
        self.0.saved_ahead(conversation, named);
    }

    /// Puts the snapshot's id into the last of the saved messages, unless the session has replaced them.
    pub(crate) fn adopt_named(&self, saved: &History, named: &History) {
        self.0.adopt_named(saved, named);
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
