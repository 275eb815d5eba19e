//! Tools, with small differences between the two protocols, and the ids of their calls.

use std::borrow::Cow;
use std::collections::VecDeque;

use everturn_ai::{JsonObject, ModelRequest, ToolDefinition, ToolRequest, ToolResponse};
use everturn_core::Result;
use serde_json::{Value, json};

use crate::{Settings, WireTools, parameters};

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

/// The requested form of output.
pub(super) enum Wanted {
    /// A schema, with its name and whether it is enforced strictly.
    Schema(Value),
    /// JSON of any shape.
    Json,
}

/// Returns the requested form of output; `None` for text.
pub(super) fn wanted(request: &ModelRequest) -> Option<Wanted> {
    let output = request.output.as_ref()?;
    match &output.schema {
        Some(schema) if output.constrained.unwrap_or(true) => {
            let strict = strict(schema);
            Some(Wanted::Schema(json!({
                "name": "output",
                "strict": strict.is_some(),
                "schema": strict.as_ref().unwrap_or(schema),
            })))
        }
        None if output.format.as_deref() == Some("json") => Some(Wanted::Json),
        _ => None,
    }
}

/// Returns the schema with every object closed and each property required; `None` if the provider cannot
/// enforce it.
fn strict(schema: &Value) -> Option<Value> {
    let mut closed = schema.clone();
    close(&mut closed).then_some(closed)
}

/// Closes all objects in a schema and returns whether it is allowed in strict mode.
fn close(schema: &mut Value) -> bool {
    let members = match schema {
        Value::Object(members) => members,
        // `true` accepts everything, which strict mode does not.
        Value::Bool(_) => return false,
        _ => return true,
    };
    let is_object =
        members.get("type").is_some_and(|kind| kind == "object") || members.contains_key("properties");
    if is_object {
        let required = members
            .get("required")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let properties = members.get("properties").and_then(Value::as_object);
        let is_complete = properties.is_some_and(|properties| {
            properties
                .keys()
                .all(|name| required.iter().any(|entry| entry == name))
        });
        let is_closed = members
            .get("additionalProperties")
            .is_none_or(|more| more == false);
        if !is_complete || !is_closed {
            return false;
        }
        members.insert("additionalProperties".to_owned(), json!(false));
    }
    let mut nested = |key: &str| match members.get_mut(key) {
        Some(Value::Object(entries)) if matches!(key, "properties" | "$defs" | "definitions") => {
            entries.values_mut().all(close)
        }
        Some(Value::Array(entries)) => entries.iter_mut().all(close),
        Some(schema @ Value::Object(_)) => close(schema),
        _ => true,
    };
    [
        "properties",
        "$defs",
        "definitions",
        "items",
        "anyOf",
        "prefixItems",
    ]
    .into_iter()
    .all(&mut nested)
        && !members.contains_key("allOf")
        && !members.contains_key("oneOf")
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

    #[test]
    fn objects_are_closed_all_the_way_down() {
        let inner = json!({"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]});
        let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": inner}}, "required": ["a"]});

        let strict = strict(&schema).unwrap();

        assert_eq!(strict["additionalProperties"], false);
        assert_eq!(strict["properties"]["a"]["items"]["additionalProperties"], false);
    }

    #[test]
    fn a_schema_with_optional_properties_cannot_be_strict() {
        assert_eq!(strict(&json!({"type": "object", "properties": {"a": {}}})), None);
        assert_eq!(strict(&json!({"type": "object"})), None);
    }
}
