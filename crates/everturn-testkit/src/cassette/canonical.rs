//! The canonical form of requests, used to compare them.
//!
//! Two requests are equal if they differ only in credentials, in the order of members, or in the references
//! of tool calls. Services generate new references each time, so references are numbered in order of
//! appearance.

use std::collections::HashMap;

use everturn_ai::ModelRequest;
use everturn_core::Result;
use serde_json::Value;

use super::Secrets;

/// Returns the canonical form of a request.
pub(crate) fn canonical(request: &ModelRequest) -> Result<Value> {
    let mut request = serde_json::to_value(request)?;
    if let Some(config) = request.get_mut("config") {
        Secrets::remove_from(config);
    }
    number_references(&mut request);
    request.sort_all_objects();
    Ok(request)
}

fn number_references(request: &mut Value) {
    let mut numbers: HashMap<String, String> = HashMap::new();
    let messages = request
        .get_mut("messages")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    let parts = messages
        .filter_map(|message| message.get_mut("content")?.as_array_mut())
        .flatten();
    for part in parts {
        for kind in ["toolRequest", "toolResponse"] {
            if let Some(Value::String(reference)) = part.get_mut(kind).and_then(|call| call.get_mut("ref")) {
                let next = format!("ref-{}", numbers.len() + 1);
                reference.clone_from(numbers.entry(reference.clone()).or_insert(next));
            }
        }
    }
}

/// Removes the value at a JSON pointer, if there is one. An element of an array becomes `null`, so that the
/// others keep their indices.
pub(crate) fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return;
    };
    match value.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.remove(&last.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(elements)) => {
            if let Some(element) = last
                .parse::<usize>()
                .ok()
                .and_then(|index| elements.get_mut(index))
            {
                *element = Value::Null;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use everturn_ai::{Message, Part, ToolRequest, ToolResponse};
    use serde_json::json;

    use super::*;

    fn tool_round(reference: &str) -> ModelRequest {
        let call = ToolRequest::new("season", json!({})).with_reference(reference);
        ModelRequest::new([
            Message::model(Part::from(call.clone())),
            Message::tool(Part::from(ToolResponse::to(&call, "leek"))),
        ])
    }

    #[test]
    fn references_do_not_distinguish_requests() {
        assert_eq!(
            canonical(&tool_round("call_8f3")).unwrap(),
            canonical(&tool_round("call_x")).unwrap()
        );
    }

    #[test]
    fn requests_differ_by_which_response_answers_which_call() {
        let mut other = tool_round("a");
        let call = ToolRequest::new("season", json!({})).with_reference("b");
        other
            .messages
            .replace(1, Message::tool(Part::from(ToolResponse::to(&call, "leek"))));

        assert_ne!(canonical(&tool_round("a")).unwrap(), canonical(&other).unwrap());
    }

    #[test]
    fn credentials_are_removed_and_settings_stay() {
        let config = json!({"apiKey": "sk-1234567890", "temperature": 1});
        let request = ModelRequest {
            config: Some(config),
            ..ModelRequest::default()
        };

        assert_eq!(canonical(&request).unwrap()["config"], json!({"temperature": 1}));
    }

    #[test]
    fn a_place_is_removed_by_its_pointer() {
        let mut value = json!({"a/b": {"c": 1}, "list": [1, 2]});

        remove(&mut value, "/a~1b/c");
        remove(&mut value, "/list/0");
        remove(&mut value, "/nowhere/at/all");

        assert_eq!(value, json!({"a/b": {}, "list": [null, 2]}));
    }
}
