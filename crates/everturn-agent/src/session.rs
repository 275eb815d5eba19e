//! Sessions: the conversation, as the agent's function, its turns, its tools and any code below them see it.

mod changes;
mod core;
mod handle;
mod patcher;

use std::fmt;
use std::sync::Arc;

use everturn_ai::{History, Message, Messages};
use everturn_core::Context;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use self::changes::{Change, Changes};
pub(crate) use self::core::{Core, Publisher, decode_custom};
pub use self::handle::SessionHandle;
use crate::{Artifact, SessionId, SessionState};

/// A type that an agent can keep as its custom state. Nothing to implement: plain data with a default is one.
pub trait CustomState:
    Serialize + DeserializeOwned + JsonSchema + Default + Clone + Send + Sync + 'static
{
}

impl<T: Serialize + DeserializeOwned + JsonSchema + Default + Clone + Send + Sync + 'static> CustomState
    for T
{
}

/// A conversation while an invocation lives: messages, custom state of type `S`, artifacts.
///
/// Cloning gives another handle to the same session; it may be used from any task. A function given to one of the
/// `update` methods may read the session and change its other parts; it works on the part as it was when it began.
pub struct Session<S = Value>(Arc<Core<S>>);

impl<S: CustomState> Session<S> {
    pub(crate) fn new(core: Arc<Core<S>>) -> Self {
        Self(core)
    }

    pub(crate) fn core(&self) -> &Arc<Core<S>> {
        &self.0
    }

    /// The session of the invocation this code runs in, if there is one and `S` is its type of custom state.
    ///
    /// This is how tools and other code several calls down reach the conversation. Where the type is not known, use
    /// [`SessionHandle::current`].
    pub fn current() -> Option<Self> {
        Self::of(&Context::current())
    }

    /// The session of the invocation a context belongs to; as [`Session::current`].
    pub fn of(context: &Context) -> Option<Self> {
        context.extension::<Core<S>>().map(Self)
    }

    /// Makes the session reachable from `context`.
    pub(crate) fn enter(&self, context: Context) -> Context {
        context
            .with_extension(Arc::clone(&self.0))
            .with_extension(Arc::new(self.handle()))
    }

    /// The same session, seen without its type of custom state.
    pub fn handle(&self) -> SessionHandle {
        SessionHandle::new(Arc::clone(&self.0))
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
        self.0.edit(|state| state.messages.clone())
    }

    /// Adds one message.
    pub fn add_message(&self, message: impl Into<Message>) {
        self.add_messages([message.into()]);
    }

    /// Adds messages.
    pub fn add_messages(&self, messages: impl IntoIterator<Item = Message>) {
        // Whoever computes the messages may look at the session while doing so.
        let messages: Vec<Message> = messages.into_iter().collect();
        self.0.add_messages(messages);
    }

    /// Puts other messages in the place of all.
    ///
    /// What they share with the present ones, because they were made from [`Session::messages`], is kept and not
    /// copied: replacing a long history by itself and an answer costs as much as adding the answer.
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

    /// The custom state.
    pub fn custom(&self) -> S {
        self.0.custom()
    }

    /// The custom state as JSON, as prompts see it.
    pub fn custom_json(&self) -> Arc<Value> {
        self.0.custom_json()
    }

    /// Replaces the custom state and streams the change to the client.
    pub fn set_custom(&self, custom: S) {
        self.update_custom(|present| *present = custom);
    }

    /// Changes the custom state and streams the change to the client.
    ///
    /// The change is visible at once, all or nothing: if `change` panics, nothing has changed. A state that cannot be
    /// written as JSON changes nothing either and fails the invocation.
    ///
    /// # Panics
    /// If `change` changes the custom state of this session in another way too.
    pub fn update_custom<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        self.0.update_custom(change)
    }

    /// What was made so far; shares, does not copy.
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

    /// Puts other artifacts in the place of all; the client is not told.
    pub fn set_artifacts(&self, artifacts: Vec<Artifact>) {
        self.0.set_artifacts(artifacts);
    }

    /// What the agent's prompt is rendered with in this conversation, if anything was given.
    pub fn prompt_input(&self) -> Option<Arc<Value>> {
        self.0.edit(|state| state.prompt_input.clone())
    }
}

impl<S> Clone for Session<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: CustomState> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Session")
            .field("session_id", self.session_id())
            .field("messages", &state.messages.len())
            .field("artifacts", &state.artifacts.len())
            .finish_non_exhaustive()
    }
}
