//! Arguments of a call that arrive in pieces, each with its JSON path.

use everturn_ai::JsonObject;
use serde_json::{Value, json};

/// Inserts a piece into the arguments. A text is appended to an existing text.
pub(super) fn apply(args: &mut Value, piece: &Value) {
    let Some(path) = piece.get("jsonPath").and_then(Value::as_str) else {
        return;
    };
    let value = ["stringValue", "numberValue", "boolValue"]
        .iter()
        .find_map(|key| piece.get(key));
    let mut place = args;
    for step in steps(path) {
        place = match step {
            Step::Key(key) => member(place, key),
            Step::Index(index) => item(place, index),
        };
    }
    match (place, value) {
        (Value::String(text), Some(Value::String(more))) => text.push_str(more),
        (place, Some(value)) => *place = value.clone(),
        (place, None) if piece.get("nullValue").is_some() => *place = Value::Null,
        _ => {}
    }
}

/// The length that a list may reach through one index.
const MAX_INDEX: usize = 10_000;

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Splits a path such as `$.guests[0].name` or `$['first name']` into steps.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.trim_start_matches('$')
        .split(['.', '[', ']'])
        .filter(|step| !step.is_empty())
        .map(|step| match step.parse() {
            Ok(index) => Step::Index(index),
            Err(_) => Step::Key(step.trim_matches(['\'', '"'])),
        })
}

fn member<'a>(place: &'a mut Value, key: &str) -> &'a mut Value {
    if !place.is_object() {
        *place = Value::Object(JsonObject::new());
    }
    &mut place[key]
}

fn item(place: &mut Value, index: usize) -> &mut Value {
    if !place.is_array() {
        *place = json!([]);
    }
    if let Value::Array(items) = place {
        let needed = index.min(MAX_INDEX) + 1;
        if items.len() < needed {
            items.resize(needed, Value::Null);
        }
    }
    &mut place[index.min(MAX_INDEX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_find_their_places() {
        let mut args = json!({});
        let pieces = [
            json!({ "jsonPath": "$.city", "stringValue": "Pa", "willContinue": true }),
            json!({ "jsonPath": "$.city", "stringValue": "ris" }),
            json!({ "jsonPath": "$.guests[1].age", "numberValue": 7 }),
            json!({ "jsonPath": "$['late']", "boolValue": false }),
            json!({ "jsonPath": "$.note", "nullValue": "NULL_VALUE" }),
        ];

        for piece in &pieces {
            apply(&mut args, piece);
        }

        let expected =
            json!({ "city": "Paris", "guests": [null, { "age": 7 }], "late": false, "note": null });
        assert_eq!(args, expected);
    }
}
