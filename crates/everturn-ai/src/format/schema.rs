//! What formats need to know of a JSON Schema.

use serde_json::Value;

/// Whether a value of the schema may have a type; a schema that names no type allows any.
pub(super) fn allows_type(schema: &Value, wanted: &str) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        Some(_) => false,
    }
}

/// The schema of an array's items, with the definitions that it may refer to.
pub(super) fn items(schema: &Value) -> Option<Value> {
    let mut items = schema.get("items")?.clone();
    for definitions in ["$defs", "definitions"] {
        if let (Some(object), Some(found)) = (items.as_object_mut(), schema.get(definitions)) {
            object.entry(definitions).or_insert_with(|| found.clone());
        }
    }
    Some(items)
}

/// The values that the schema, or else the first of its properties that names any, allows.
pub(super) fn choices(schema: &Value) -> Option<Vec<Value>> {
    let own = |schema: &Value| match schema.get("enum") {
        Some(Value::Array(values)) => Some(values.clone()),
        _ => constants(schema),
    };
    own(schema).or_else(|| schema.get("properties")?.as_object()?.values().find_map(own))
}

/// An enumeration written as alternatives of one constant each.
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

/// A schema in a fenced block, as instructions show it.
pub(super) fn fenced(schema: &Value) -> String {
    format!("```json\n{schema}\n```")
}
