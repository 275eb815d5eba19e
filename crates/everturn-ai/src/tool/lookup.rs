//! Finding registered tools.

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
