//! Documents as patches on other documents.

use everturn_agent::patch::JsonPatch;
use serde_json::Value;

use crate::{Fault, Outcome, parse, write};

/// The greatest number of patches between a document and a full text.
pub const MAX_PATCHES: i32 = 16;

/// Documents of up to this many bytes are written in full, because a patch would save less than it costs.
const PATCH_OVER: usize = 1024;

/// How many times smaller than the document a patch must be.
const PATCH_GAIN: usize = 4;

/// Applies patches to a text, in their order.
///
/// # Errors
/// [`Fault::Damaged`] if the text cannot be parsed or a patch does not apply.
pub fn patched(text: String, patches: Vec<JsonPatch>) -> Outcome<String> {
    if patches.is_empty() {
        return Ok(text);
    }
    let value: Value = parse(&text)?;
    // As one patch, so that the document is copied once.
    let patch: JsonPatch = patches.into_iter().flat_map(|patch| patch.0).collect();
    let value = patch
        .apply(&value)
        .map_err(|error| Fault::damaged(format!("a patch does not apply: {error}")))?;
    write(&value)
}

/// Returns the text of a patch from one document to another, whose text has `len` bytes. Returns `None` if
/// the patch would not be small enough, or would not result in exactly the same text.
///
/// # Errors
/// [`Fault::Refused`] if the patch cannot be serialised.
pub fn patch_to(old: &Value, new: &Value, len: usize) -> Outcome<Option<String>> {
    if len <= PATCH_OVER {
        return Ok(None);
    }
    let patch = JsonPatch::diff(old, new);
    let text = write(&patch)?;
    if text.len() * PATCH_GAIN > len {
        return Ok(None);
    }
    // A patch may add members in another order than the document has them.
    let is_exact = patch.apply(old).is_ok_and(|value| is_same_text(&value, new));
    Ok(is_exact.then_some(text))
}

/// Returns whether two values have the same text. Unlike `==`, compares the order of members and the sign of
/// zero.
pub fn is_same_text(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let same = |((name, one), (of, other)): ((&String, &Value), (&String, &Value))| {
                name == of && is_same_text(one, other)
            };
            one.len() == other.len() && one.iter().zip(other).all(same)
        }
        (Value::Array(one), Value::Array(other)) => {
            let same = |(one, other)| is_same_text(one, other);
            one.len() == other.len() && one.iter().zip(other).all(same)
        }
        (Value::Number(one), Value::Number(other)) => {
            let sign = |number: &serde_json::Number| number.as_f64().map(f64::is_sign_negative);
            one == other && sign(one) == sign(other)
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_same_text_if_and_only_if_they_are_written_alike() {
        let values = [
            json!({"a": 1, "b": [2, {"c": null}]}),
            json!({"b": [2, {"c": null}], "a": 1}),
            json!({"a": 1, "b": [2, {"c": null}, 3]}),
            json!({"a": 1}),
            json!([0.0]),
            json!([-0.0]),
            json!([0]),
            json!([1.0]),
            json!([1]),
            json!("1"),
        ];

        for one in &values {
            for other in &values {
                let (text, others) = (one.to_string(), other.to_string());
                assert_eq!(is_same_text(one, other), text == others, "{text} and {others}");
            }
        }
    }
}
