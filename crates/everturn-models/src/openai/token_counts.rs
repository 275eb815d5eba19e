//! The usage of a call, as the two protocols report it.

use std::collections::BTreeMap;

use everturn_ai::Usage;
use serde_json::{Number, Value};

/// The usage of a Responses answer.
pub(super) fn of_response(usage: &Value) -> Usage {
    Usage {
        input_tokens: count(usage, "/input_tokens"),
        output_tokens: count(usage, "/output_tokens"),
        total_tokens: count(usage, "/total_tokens"),
        thoughts_tokens: count(usage, "/output_tokens_details/reasoning_tokens"),
        cached_content_tokens: count(usage, "/input_tokens_details/cached_tokens"),
        custom: others(
            usage,
            &[
                "input_tokens",
                "output_tokens",
                "total_tokens",
                "reasoning_tokens",
                "cached_tokens",
            ],
        ),
        ..Usage::default()
    }
}

/// The usage of a Chat Completions answer.
pub(super) fn of_chat(usage: &Value) -> Usage {
    Usage {
        input_tokens: count(usage, "/prompt_tokens"),
        output_tokens: count(usage, "/completion_tokens"),
        total_tokens: count(usage, "/total_tokens"),
        thoughts_tokens: count(usage, "/completion_tokens_details/reasoning_tokens"),
        cached_content_tokens: count(usage, "/prompt_tokens_details/cached_tokens")
            .or_else(|| count(usage, "/prompt_cache_hit_tokens")),
        custom: others(
            usage,
            &[
                "prompt_tokens",
                "completion_tokens",
                "total_tokens",
                "reasoning_tokens",
                "cached_tokens",
            ],
        ),
        ..Usage::default()
    }
}

fn count(usage: &Value, pointer: &str) -> Option<u64> {
    usage.pointer(pointer)?.as_u64()
}

/// Returns every other number, under its name.
fn others(usage: &Value, known: &[&str]) -> Option<BTreeMap<String, Number>> {
    let mut found = BTreeMap::new();
    collect(usage, known, &mut found);
    (!found.is_empty()).then_some(found)
}

fn collect(usage: &Value, known: &[&str], found: &mut BTreeMap<String, Number>) {
    for (name, value) in usage.as_object().into_iter().flatten() {
        match value {
            Value::Number(number) if !known.contains(&name.as_str()) => {
                found.insert(name.clone(), number.clone());
            }
            Value::Object(_) => collect(value, known, found),
            _ => {}
        }
    }
}
