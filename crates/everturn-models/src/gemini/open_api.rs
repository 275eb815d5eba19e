//! JSON Schema in the OpenAPI subset that older servers of the protocol accept.

use everturn_ai::JsonObject;
use serde_json::{Value, json};

/// The depth to which references are followed, because a schema may refer to itself.
const MAX_DEPTH: usize = 12;
const KEPT: [&str; 18] = [
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "propertyOrdering",
    "default",
    "minimum",
    "maximum",
];

/// Converts a schema: references are resolved, constants and alternatives of types are rewritten.
pub(super) fn open_api(schema: &JsonObject) -> Value {
    converted(&Value::Object(schema.clone()), schema, 0)
}

fn converted(schema: &Value, root: &JsonObject, depth: usize) -> Value {
    let Value::Object(schema) = schema else {
        return json!({ "type": "STRING" });
    };
    if depth > MAX_DEPTH {
        return json!({ "type": "OBJECT" });
    }
    if let Some(target) = schema.get("$ref").and_then(|reference| resolved(reference, root)) {
        return converted(target, root, depth + 1);
    }
    let inner = |schema: &Value| converted(schema, root, depth + 1);
    let mut wire = JsonObject::new();
    add_type(&mut wire, schema.get("type"));
    for key in KEPT {
        if let Some(value) = schema.get(key) {
            wire.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(constant) = schema.get("const") {
        wire.insert("enum".to_owned(), json!([constant]));
    }
    if let Some(items) = schema.get("items") {
        wire.insert("items".to_owned(), inner(items));
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let properties: JsonObject = properties
            .iter()
            .map(|(name, schema)| (name.clone(), inner(schema)))
            .collect();
        wire.insert("properties".to_owned(), properties.into());
    }
    if let Some(Value::Array(choices)) = schema.get("anyOf").or_else(|| schema.get("oneOf")) {
        add_choices(&mut wire, choices, inner);
    }
    wire.into()
}

/// Adds the type: `["string", "null"]` is a string that may be null.
fn add_type(wire: &mut JsonObject, kind: Option<&Value>) {
    let kinds: Vec<&str> = match kind {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    if let Some(kind) = kinds.iter().find(|kind| **kind != "null") {
        wire.insert("type".to_owned(), json!(kind.to_ascii_uppercase()));
    }
    if kinds.contains(&"null") {
        wire.insert("nullable".to_owned(), json!(true));
    }
}

/// Adds alternatives: one schema or null is that schema, nullable.
fn add_choices(wire: &mut JsonObject, choices: &[Value], inner: impl Fn(&Value) -> Value) {
    let is_null = |choice: &Value| choice["type"] == "null";
    let mut others: Vec<Value> = choices
        .iter()
        .filter(|choice| !is_null(choice))
        .map(&inner)
        .collect();
    if others.len() < choices.len() {
        wire.insert("nullable".to_owned(), json!(true));
    }
    match others.pop() {
        Some(Value::Object(only)) if others.is_empty() => wire.extend(only),
        Some(last) => {
            others.push(last);
            wire.insert("anyOf".to_owned(), others.into());
        }
        None => {}
    }
}

fn resolved<'a>(reference: &Value, root: &'a JsonObject) -> Option<&'a Value> {
    let mut path = reference.as_str()?.strip_prefix("#/")?.split('/');
    let first = root.get(path.next()?)?;
    path.try_fold(first, |schema, key| schema.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_subset_lacks_is_put_otherwise() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "kind": { "const": "leek" },
                "size": { "type": ["integer", "null"] },
                "of": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] },
            },
            "additionalProperties": false,
            "required": ["kind"],
            "$defs": { "Node": { "type": "object", "properties": { "name": { "type": "string" } } } },
        });

        let converted = open_api(schema.as_object().unwrap());

        let expected = json!({
            "type": "OBJECT",
            "required": ["kind"],
            "properties": {
                "kind": { "enum": ["leek"] },
                "size": { "type": "INTEGER", "nullable": true },
                "of": { "nullable": true, "type": "OBJECT", "properties": { "name": { "type": "STRING" } } },
            },
        });
        assert_eq!(converted, expected);
    }

    #[test]
    fn a_schema_that_holds_itself_ends() {
        let schema = json!({
            "type": "object",
            "properties": { "child": { "$ref": "#/$defs/Node" } },
            "$defs": { "Node": { "type": "object", "properties": { "child": { "$ref": "#/$defs/Node" } } } },
        });

        let text = open_api(schema.as_object().unwrap()).to_string();

        assert!(text.len() < 2_000, "{text}");
    }
}
