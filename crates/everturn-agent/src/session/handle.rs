//! A session without the type of its custom state, and sessions as arguments of tools.

use std::any::type_name;
use std::sync::Arc;

use everturn_ai::{FromToolContext, History, Requirement, Tool, ToolContext};
use everturn_core::{Context, Error, HandlerResult, Registry, Result};
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

everturn_core::opaque_debug!(SessionHandle);

/// The provider that a [`Requirement`] names for the custom state of an agent's sessions.
const SESSION: &str = "session";

/// The session of the agent that the tool works for. An agent with another custom state than `S` refuses the
/// tool when it is defined.
///
/// `FAILED_PRECONDITION` if the tool is called outside an agent, or by an agent with another custom state.
impl<S: CustomState> FromToolContext for Session<S> {
    fn requirement() -> Option<Requirement> {
        Some(Requirement::new::<S>(SESSION))
    }

    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
        let missing = || {
            let wanted = format!("Session<{}>", type_name::<S>());
            match SessionHandle::of(context.context()) {
                Some(_) => Error::failed_precondition(format!(
                    "{} needs a {wanted}, and the agent keeps another custom state: define it with that state",
                    called(context),
                )),
                None => outside(context, &wanted),
            }
        };
        Ok(Session::of(context.context()).ok_or_else(missing)?)
    }
}

/// The session of the agent that the tool works for, whatever its custom state is.
///
/// `FAILED_PRECONDITION` if the tool is called outside an agent.
impl FromToolContext for SessionHandle {
    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
        Ok(Self::of(context.context()).ok_or_else(|| outside(context, "SessionHandle"))?)
    }
}

fn outside(context: &ToolContext, wanted: &str) -> Error {
    Error::failed_precondition(format!(
        "{} needs a {wanted}, and is called outside an agent: give it to an agent's turn",
        called(context)
    ))
}

fn called(context: &ToolContext) -> String {
    let request = context.request();
    request.map_or_else(
        || "the tool".to_owned(),
        |request| format!("tool '{}'", request.name),
    )
}

/// Checks that an agent whose custom state is an `S` provides what a tool needs of its session and of its
/// application.
///
/// # Errors
/// `INVALID_ARGUMENT` if the tool needs another custom state, `FAILED_PRECONDITION` if the application was
/// not given a value that the tool takes.
pub(crate) fn check_tool<S: CustomState>(agent: &str, registry: &Registry, tool: &Tool) -> Result<()> {
    let function = format_args!("tool '{}' of agent '{agent}'", tool.name());
    registry.dependencies().check(function, tool.requirements())?;
    let other = |needed: &&Requirement| needed.provider() == SESSION && !needed.is::<S>();
    match tool.requirements().iter().find(other) {
        None => Ok(()),
        Some(needed) => Err(Error::invalid_argument(format!(
            "tool '{}' needs a Session<{}>, and agent '{agent}' keeps the custom state {}: define the agent with the state that \
             the tool needs, or give the tool to another agent",
            tool.name(),
            needed.type_name(),
            type_name::<S>(),
        ))),
    }
}
