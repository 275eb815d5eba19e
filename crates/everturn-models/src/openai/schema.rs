//! Schemas in the form that strict mode requires.

use everturn_ai::ModelRequest;
use serde_json::{Value, json};

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
