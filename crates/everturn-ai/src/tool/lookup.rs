//! Finding registered tools.

use std::collections::BTreeMap;

use everturn_core::{ActionType, Error, Registry, Result};

use super::Tool;
use crate::reason;

/// The tool of that name or key; a prompt counts as a tool that returns what it renders.
///
/// # Errors
/// `NOT_FOUND` with [`reason::TOOL_NOT_FOUND`] if there is none, else what a plugin fails with.
pub async fn lookup_tool(registry: &Registry, name: &str) -> Result<Tool> {
    let keys = if name.starts_with('/') {
        vec![name.to_owned()]
    } else {
        [ActionType::TOOL, ActionType::TOOL_V2, ActionType::PROMPT]
            .iter()
            .map(|kind| kind.key(name))
            .collect()
    };
    for key in &keys {
        if let Some(action) = registry.lookup(key).await? {
            return Ok(Tool::from_action(action));
        }
    }
    Err(Error::not_found(format!("no tool '{name}' is registered")).with_reason(reason::TOOL_NOT_FOUND))
}

/// The tools whose names begin as `pattern` does before its closing `*`, such as `files/*`, by name.
///
/// # Errors
/// `NOT_FOUND` with [`reason::TOOL_NOT_FOUND`] if there are none, else what the plugin fails with.
pub async fn lookup_tools(registry: &Registry, pattern: &str) -> Result<Vec<Tool>> {
    // A plugin registers its tools when one of its names is first looked up.
    registry.lookup(&ActionType::TOOL.key(pattern)).await?;
    let prefix = pattern.strip_suffix('*').unwrap_or(pattern);
    let mut found = BTreeMap::new();
    for kind in [ActionType::TOOL_V2, ActionType::TOOL] {
        let tools = registry.of_type(&kind).into_iter();
        found.extend(tools.filter(|(name, _)| name.starts_with(prefix)));
    }
    if found.is_empty() {
        let error = Error::not_found(format!("no tool is registered whose name begins with '{prefix}'"));
        return Err(error.with_reason(reason::TOOL_NOT_FOUND));
    }
    Ok(found.into_values().map(Tool::from_action).collect())
}
