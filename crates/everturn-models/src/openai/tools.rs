//! Tools, with small differences between the two protocols.

use everturn_ai::{JsonObject, ModelRequest, ToolDefinition};
use everturn_core::Result;
use serde_json::{Value, json};

use crate::settings::Settings;
use crate::wire_tools::{WireTools, parameters};

/// The longest name of a tool.
const MAX_NAME_CHARS: usize = 64;

/// Returns the tools of a request with names that both protocols allow.
pub(super) fn of(request: &ModelRequest) -> WireTools {
    WireTools::new(request.tools(), MAX_NAME_CHARS)
}

/// Adds the tools of a request, those of its settings, and the tool choice to a body. `function` converts a
/// tool.
///
/// # Errors
/// `INVALID_ARGUMENT` if the settings have tools that are not a list.
pub(super) fn add(
    body: &mut JsonObject,
    request: &ModelRequest,
    settings: &mut Settings,
    function: impl Fn(&ToolDefinition) -> Value,
) -> Result<()> {
    let mut tools: Vec<Value> = request.tools().iter().map(function).collect();
    tools.extend(settings.take_tools()?);
    if tools.is_empty() {
        return Ok(());
    }
    body.insert("tools".to_owned(), tools.into());
    if let Some(choice) = request.tool_choice {
        body.insert("tool_choice".to_owned(), json!(choice));
    }
    Ok(())
}

/// Returns the fields of a tool that both protocols share.
pub(super) fn described(tool: &ToolDefinition, tools: &WireTools) -> Value {
    json!({
        "name": tools.to_wire(&tool.name),
        "description": tool.description,
        "parameters": parameters(tool),
    })
}

/// Returns whether a tool requests enforcement of its schema.
pub(super) fn is_strict(tool: &ToolDefinition) -> bool {
    let strict = tool.metadata.as_ref().and_then(|metadata| metadata.get("strict"));
    strict == Some(&json!(true))
}
