//! Tools, with small differences between the two protocols, and the ids of their calls.

use std::borrow::Cow;
use std::collections::VecDeque;

use everturn_ai::{JsonObject, ModelRequest, ToolDefinition, ToolRequest, ToolResponse};
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

/// Assigns ids to the calls of a conversation that have none, and to their answers, in order.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    made: usize,
    waiting: VecDeque<(String, String)>,
}

impl CallIds {
    pub(super) fn of_request<'a>(&mut self, request: &'a ToolRequest) -> Cow<'a, str> {
        if let Some(reference) = request
            .reference
            .as_deref()
            .filter(|reference| !reference.is_empty())
        {
            return Cow::Borrowed(reference);
        }
        self.made += 1;
        // No provider assigns such an id, so it cannot conflict. It is the same in the next request, whose
        // prefix the provider may have cached.
        let id = format!("call_without_id_{}", self.made);
        self.waiting.push_back((request.name.clone(), id.clone()));
        Cow::Owned(id)
    }

    pub(super) fn of_response<'a>(&mut self, response: &'a ToolResponse) -> Cow<'a, str> {
        if let Some(reference) = response
            .reference
            .as_deref()
            .filter(|reference| !reference.is_empty())
        {
            return Cow::Borrowed(reference);
        }
        let place = self.waiting.iter().position(|(name, _)| *name == response.name);
        let call = place.and_then(|place| self.waiting.remove(place));
        call.map_or(Cow::Borrowed(response.name.as_str()), |(_, id)| Cow::Owned(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_ids_are_answered_in_order() {
        let request = ToolRequest::new("time", 1);
        let response = ToolResponse::to(&request, 2);
        let mut ids = CallIds::default();

        let calls = [ids.of_request(&request), ids.of_request(&request)].map(Cow::into_owned);
        let answers = [ids.of_response(&response), ids.of_response(&response)].map(Cow::into_owned);

        assert_eq!(calls, ["call_without_id_1", "call_without_id_2"]);
        assert_eq!(answers, calls);
    }
}
