//! Sessions as arguments of tools.

use std::any::type_name;

use everturn_ai::{FromToolContext, Requirement, Tool, ToolContext};
use everturn_core::{Error, HandlerResult, Registry, Result};

use super::{Session, SessionHandle};
use crate::CustomState;

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
