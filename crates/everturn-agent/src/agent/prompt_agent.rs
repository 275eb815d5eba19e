//! Agents around a prompt: each turn renders the prompt around the conversation and asks the model.
//!
//! The prompt is rendered again every turn, with the conversation's prompt input and the live custom state
//! (`{{@custom.field}}`). The prompt's own messages are sent to the model and never become part of the
//! conversation; the messages of the user, the model and its tools do.

/// Defines builder methods that pass their argument to the method of the same name of the agent's kind.
macro_rules! forwards {
    ($part:ident; $($(#[$attribute:meta])* $name:ident($value:ident: $type:ty);)*) => {$(
        $(#[$attribute])*
        pub fn $name(mut self, $value: $type) -> Self {
            self.kind.$part = self.kind.$part.$name($value);
            self
        }
    )*};
}

mod inline;
mod named;

use everturn_ai::{Tool, ToolReference};
use everturn_core::{ActionType, Registry, Result};
use serde_json::Value;

pub use self::inline::{InlinePrompt, agent};
pub use self::named::{NamedPrompt, prompt_agent};
use crate::CustomState;
use crate::invocation::RespondOnly;
use crate::session::check_tool;

/// Checks every tool that is known when the agent is defined: those given as they are, and those named that
/// are registered by then. Tools that plugins, middleware or later definitions bring are checked when they
/// are called.
///
/// Returns those that cannot be restarted, so that only a response answers them, with the schemas of their
/// answers.
///
/// # Errors
/// `INVALID_ARGUMENT` if a tool needs another custom state than the agent's, `FAILED_PRECONDITION` if the
/// application was not given a value that a tool takes.
pub(super) fn check_tools<S: CustomState>(
    agent: &str,
    registry: &Registry,
    tools: &[ToolReference],
) -> Result<RespondOnly> {
    let mut respond_only = RespondOnly::new();
    for tool in tools {
        let known = match tool {
            ToolReference::Tool(tool) => Some(tool.clone()),
            ToolReference::Name(name) => registered(registry, name),
        };
        let Some(tool) = known else { continue };
        check_tool::<S>(agent, registry, &tool)?;
        if !tool.is_restartable() {
            // The schema of a tool without one accepts everything.
            let schema = tool.output_schema().map(|schema| schema.as_json().clone());
            respond_only.insert(tool.short_name().to_owned(), schema.unwrap_or(Value::Bool(true)));
        }
    }
    Ok(respond_only)
}

fn registered(registry: &Registry, name: &str) -> Option<Tool> {
    let keys = [ActionType::TOOL, ActionType::TOOL_V2].map(|kind| kind.key(name));
    let found = keys.iter().map(String::as_str).chain([name]);
    found
        .filter_map(|key| registry.get(key))
        .map(Tool::from_action)
        .next()
}
