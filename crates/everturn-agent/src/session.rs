//! Sessions: the conversation during an invocation, for the agent's function, its turns and its tools.

mod core;
mod handle;
mod typed_write;

use std::sync::Arc;

use everturn_ai::{History, Message, Messages};
use everturn_core::{Context, Error};
use serde_json::Value;

pub(crate) use self::core::{AnySession, Change, Changes, Core, Publisher};
pub use self::handle::SessionHandle;
pub(crate) use self::handle::check_tool;
use crate::{AgentStreamChunk, Artifact, CustomState, SessionId, SessionState};

/// A session during an invocation: its messages, its custom state of type `S`, and its artifacts.
///
/// Cloning gives another handle to the same session; it may be used from any task. A function given to one of
/// the `update` methods may read the session and change its other parts; it works on the part as it was when
/// it began.
pub struct Session<S = Value>(Arc<Core<S>>);

impl<S: CustomState> Session<S> {
    pub(crate) fn new(core: Arc<Core<S>>) -> Self {
        Self(core)
    }

    pub(crate) fn core(&self) -> &Arc<Core<S>> {
        &self.0
    }

    /// Returns the session of the invocation in which the calling code runs, if there is one and `S` is the
    /// type of its custom state.
    ///
    /// Tools and other code several calls down reach the conversation in this way. Where the type is not
    /// known, use [`SessionHandle::current`].
    pub fn current() -> Option<Self> {
        Self::of(&Context::current())
    }

    /// Returns the session of the invocation to which a context belongs, like [`Session::current`].
    pub fn of(context: &Context) -> Option<Self> {
        context.extension::<Core<S>>().map(Self)
    }

    /// Creates a session without an agent, for tests of tools and of other code that works on sessions. It
    /// has no messages, and its changes are not streamed.
    pub fn standalone(custom: S) -> Self {
        let id = SessionId::generate();
        let state = SessionState::beginning(&id);
        let core = Core::new(id, state, Arc::new(NoPublisher), None, Context::new());
        let session = Self(Arc::new(
            core.expect("a state without a custom state fits every type"),
        ));
        session.set_custom(custom);
        session
    }

    /// Returns a context in which code finds the session with [`Session::current`], and tools take it as an
    /// argument.
    pub fn enter(&self, context: Context) -> Context {
        self.handle().enter(context)
    }

    /// Returns a handle to the session without the type of its custom state.
    pub fn handle(&self) -> SessionHandle {
        SessionHandle::new(Arc::clone(&self.0))
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
        self.0.edit(|state| state.messages.clone())
    }

    /// Adds one message.
    pub fn add_message(&self, message: impl Into<Message>) {
        self.add_messages([message.into()]);
    }

    /// Adds messages.
    pub fn add_messages(&self, messages: impl IntoIterator<Item = Message>) {
        // The iterator may read the session, so it runs before the lock is taken.
        let messages: Vec<Message> = messages.into_iter().collect();
        self.0.add_messages(messages);
    }

    /// Replaces all messages.
    ///
    /// Messages that come from [`Session::messages`] are recognised and stay shared: replacing a long history
    /// by itself and one answer costs as much as adding the answer.
    pub fn set_messages(&self, messages: impl Into<Messages>) {
        self.0.set_messages(messages.into());
    }

    /// Changes the messages in one step. If `change` panics, nothing has changed.
    ///
    /// # Panics
    /// If `change` changes the messages of this session in another way too.
    pub fn update_messages<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        self.0.update_messages(change)
    }

    /// Returns a copy of the custom state.
    pub fn custom(&self) -> S {
        self.0.custom()
    }

    /// Returns the custom state as JSON, as prompts see it: as its type writes it, the defaults included.
    pub fn custom_json(&self) -> Arc<Value> {
        self.0.custom_json()
    }

    /// Replaces the custom state and streams the change to the client. Stored members that `S` does not have
    /// stay, as with [`Session::update_custom`].
    pub fn set_custom(&self, custom: S) {
        self.update_custom(|present| *present = custom);
    }

    /// Changes the custom state and streams the change to the client.
    ///
    /// Only the difference is written to the stored state: members that `S` does not have stay as they are,
    /// at every depth. So a program of an earlier version does not remove what a later one has stored. An
    /// element of a list keeps them wherever it moves. An element that changes is recognised by its `id`,
    /// `key` or `name`; without one, by its place in a list whose length does not change.
    ///
    /// The change is visible at once, all or nothing: if `change` panics, nothing has changed. A state that
    /// cannot be written as JSON changes nothing either and fails the invocation.
    ///
    /// # Panics
    /// If `change` changes the custom state of this session in another way too.
    pub fn update_custom<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        self.0.update_custom(change)
    }

    /// Returns the artifacts so far. They are shared, not copied.
    pub fn artifacts(&self) -> Arc<Vec<Artifact>> {
        self.0.edit(|state| Arc::clone(&state.artifacts))
    }

    /// Adds an artifact, or replaces the one of the same name, and streams it to the client.
    pub fn add_artifact(&self, artifact: Artifact) {
        self.add_artifacts([artifact]);
    }

    /// Adds artifacts, each as [`Session::add_artifact`] does.
    pub fn add_artifacts(&self, artifacts: impl IntoIterator<Item = Artifact>) {
        let artifacts: Vec<Artifact> = artifacts.into_iter().collect();
        self.0.add_artifacts(artifacts);
    }

    /// Replaces all artifacts without telling the client.
    pub fn set_artifacts(&self, artifacts: Vec<Artifact>) {
        self.0.set_artifacts(artifacts);
    }

    /// Returns the prompt input of this conversation, if it has one.
    pub fn prompt_input(&self) -> Option<Arc<Value>> {
        self.0.edit(|state| state.prompt_input.clone())
    }
}

/// The client of a session that has none.
struct NoPublisher;

impl Publisher for NoPublisher {
    fn is_silenced(&self) -> bool {
        true
    }

    fn post(&self, _chunk: AgentStreamChunk) {}

    fn fault(&self, error: Error) {
        tracing::error!(%error, "a change of a session failed");
    }
}

impl<S> Clone for Session<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

everturn_core::opaque_debug!(Session<S>);
