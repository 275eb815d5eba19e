//! Token counts of several requests that are one model call.

use everturn_ai::Usage;
use serde_json::Number;

/// Adds the counts of two requests.
pub(crate) fn sum(first: Usage, second: &Usage) -> Usage {
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        _ => Some(a.unwrap_or_default() + b.unwrap_or_default()),
    };
    let mut custom = first.custom.unwrap_or_default();
    for (key, number) in second.custom.iter().flatten() {
        let before = custom.get(key).and_then(Number::as_u64).unwrap_or_default();
        custom.insert(key.clone(), (before + number.as_u64().unwrap_or_default()).into());
    }
    Usage {
        input_tokens: sum(first.input_tokens, second.input_tokens),
        output_tokens: sum(first.output_tokens, second.output_tokens),
        total_tokens: sum(first.total_tokens, second.total_tokens),
        thoughts_tokens: sum(first.thoughts_tokens, second.thoughts_tokens),
        cached_content_tokens: sum(first.cached_content_tokens, second.cached_content_tokens),
        custom: (!custom.is_empty()).then_some(custom),
        ..Usage::default()
    }
}
