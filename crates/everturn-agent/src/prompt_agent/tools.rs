//! Checking that an agent meets the requirements of its prompt's tools.

use everturn_ai::{Tool, ToolReference};
use everturn_core::{ActionType, Registry, Result};

use crate::CustomState;
use crate::session::check_tool;

/// Checks every tool that is known when the agent is defined: those given as they are, and those named that are registered
/// by then. Tools that plugins, middleware or later definitions bring are checked when they are called.
///
/// # Errors
/// `INVALID_ARGUMENT` if a tool needs another custom state than the agent's.
pub(super) fn check_tools<S: CustomState>(
    agent: &str,
    registry: &Registry,
    tools: &[ToolReference],
) -> Result<()> {
    tools.iter().try_for_each(|tool| match tool {
        ToolReference::Tool(tool) => check_tool::<S>(agent, tool),
        ToolReference::Name(name) => {
            registered(registry, name).map_or(Ok(()), |tool| check_tool::<S>(agent, &tool))
        }
    })
}

fn registered(registry: &Registry, name: &str) -> Option<Tool> {
    let keys = [ActionType::TOOL, ActionType::TOOL_V2].map(|kind| kind.key(name));
    let found = keys.iter().map(String::as_str).chain([name]);
    found
        .filter_map(|key| registry.get(key))
        .map(Tool::from_action)
        .next()
}
