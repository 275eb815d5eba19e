//! The facts about a JSON Schema that formats need.

use serde_json::Value;

/// Returns whether the schema allows values of a type; a schema that names no type allows any.
pub(super) fn allows_type(schema: &Value, wanted: &str) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        Some(_) => false,
    }
}

/// Returns the schema of an array's items, with the definitions that it may refer to.
pub(super) fn items(schema: &Value) -> Option<Value> {
    let mut items = schema.get("items")?.clone();
    for definitions in ["$defs", "definitions"] {
        if let (Some(object), Some(found)) = (items.as_object_mut(), schema.get(definitions)) {
            object.entry(definitions).or_insert_with(|| found.clone());
        }
    }
    Some(items)
}

/// Returns the values that the schema allows, or else those of its first property that lists any.
pub(super) fn choices(schema: &Value) -> Option<Vec<Value>> {
    let own = |schema: &Value| match schema.get("enum") {
        Some(Value::Array(values)) => Some(values.clone()),
        _ => constants(schema),
    };
    own(schema).or_else(|| schema.get("properties")?.as_object()?.values().find_map(own))
}

/// Returns the values of an enumeration written as alternatives of one constant each.
fn constants(schema: &Value) -> Option<Vec<Value>> {
    if let Some(value) = schema.get("const") {
        return Some(vec![value.clone()]);
    }
    let alternatives = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    let values: Vec<Vec<Value>> = alternatives
        .iter()
        .map(|alternative| match alternative.get("enum") {
            Some(Value::Array(values)) => Some(values.clone()),
            _ => Some(vec![alternative.get("const")?.clone()]),
        })
        .collect::<Option<_>>()?;
    Some(values.into_iter().flatten().collect())
}

/// Formats a schema as a fenced block for instructions.
pub(super) fn fenced(schema: &Value) -> String {
    format!("```json\n{schema}\n```")
}
