//! Checking that an agent meets the requirements of its prompt's tools.

use everturn_ai::{Tool, ToolReference};
use everturn_core::{ActionType, Registry, Result};

use crate::CustomState;
use crate::session::check_tool;

/// Checks every tool that is known when the agent is defined: those given as they are, and those named that are registered
/// by then. Tools that plugins, middleware or later definitions bring are checked when they are called.
///
/// Returns the names of those that cannot be restarted, so that only a response answers them.
///
/// # Errors
/// `INVALID_ARGUMENT` if a tool needs another custom state than the agent's, `FAILED_PRECONDITION` if the application was not
/// given a value that a tool takes.
pub(super) fn check_tools<S: CustomState>(
    agent: &str,
    registry: &Registry,
    tools: &[ToolReference],
) -> Result<Vec<String>> {
    let mut respond_only = Vec::new();
    for tool in tools {
        let known = match tool {
            ToolReference::Tool(tool) => Some(tool.clone()),
            ToolReference::Name(name) => registered(registry, name),
        };
        let Some(tool) = known else { continue };
        check_tool::<S>(agent, registry, &tool)?;
        if !tool.is_restartable() {
            respond_only.push(tool.short_name().to_owned());
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
