//! The finish reason and the token counts of an answer.

use std::collections::BTreeMap;

use everturn_ai::{FinishReason, Usage};
use serde_json::{Number, Value};

/// Converts a `stop_reason`.
pub(super) fn finish_reason(stop_reason: Option<&str>) -> FinishReason {
    match stop_reason {
        Some("end_turn" | "stop_sequence" | "tool_use") => FinishReason::Stop,
        Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
        Some("refusal") => FinishReason::Blocked,
        Some("pause_turn" | "compaction") => FinishReason::Other,
        _ => FinishReason::Unknown,
    }
}

/// Explains a stop: by the explanation of a refusal, else its category, else the reason itself if it is not
/// an ordinary one.
pub(super) fn finish_message(stop_reason: Option<&str>, details: Option<&Value>) -> Option<String> {
    let detail = |key| details?.get(key)?.as_str().map(str::to_owned);
    detail("explanation").or_else(|| detail("category")).or_else(|| {
        let is_ordinary = matches!(stop_reason, Some("end_turn" | "tool_use" | "max_tokens"));
        stop_reason.filter(|_| !is_ordinary).map(str::to_owned)
    })
}

/// Reads the counts of a `usage` object. Anthropic does not count cached tokens as input; the result does.
pub(super) fn usage(wire: &Value) -> Usage {
    let count = |pointer: &str| wire.pointer(pointer).and_then(Value::as_u64);
    let created = count("/cache_creation_input_tokens");
    let cached = count("/cache_read_input_tokens");
    let input = count("/input_tokens")
        .map(|uncached| uncached + created.unwrap_or_default() + cached.unwrap_or_default());
    let output = count("/output_tokens");
    let custom = custom_counts(wire);
    Usage {
        input_tokens: input,
        output_tokens: output,
        total_tokens: input.zip(output).map(|(input, output)| input + output),
        thoughts_tokens: count("/output_tokens_details/thinking_tokens"),
        cached_content_tokens: cached,
        custom: (!custom.is_empty()).then_some(custom),
        ..Usage::default()
    }
}

/// Reads the counts that only Anthropic has: tokens written to the cache, by their time to live, and uses of
/// server tools.
fn custom_counts(wire: &Value) -> BTreeMap<String, Number> {
    let mut counts = BTreeMap::new();
    let created = "cache_creation_input_tokens";
    if let Some(Value::Number(number)) = wire.get(created) {
        counts.insert(created.to_owned(), number.clone());
    }
    for group in ["cache_creation", "server_tool_use"] {
        for (key, value) in wire.get(group).and_then(Value::as_object).into_iter().flatten() {
            if let Value::Number(number) = value {
                counts.insert(key.clone(), number.clone());
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_stop_reason_has_a_finish_reason() {
        let cases = [
            ("end_turn", FinishReason::Stop),
            ("stop_sequence", FinishReason::Stop),
            ("tool_use", FinishReason::Stop),
            ("max_tokens", FinishReason::Length),
            ("model_context_window_exceeded", FinishReason::Length),
            ("refusal", FinishReason::Blocked),
            ("pause_turn", FinishReason::Other),
            ("compaction", FinishReason::Other),
            ("something_new", FinishReason::Unknown),
        ];
        for (stop_reason, expected) in cases {
            assert_eq!(finish_reason(Some(stop_reason)), expected, "{stop_reason}");
        }
    }

    #[test]
    fn a_refusal_is_explained() {
        let details = json!({ "category": "cyber", "explanation": "I cannot help with that." });

        let explained = finish_message(Some("refusal"), Some(&details));

        assert_eq!(explained.as_deref(), Some("I cannot help with that."));
        assert_eq!(finish_message(Some("refusal"), None).as_deref(), Some("refusal"));
        assert_eq!(finish_message(Some("end_turn"), None), None);
    }

    #[test]
    fn cached_tokens_are_part_of_the_input() {
        let usage = usage(&json!({
            "input_tokens": 10, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000,
            "cache_creation": { "ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 60 },
            "output_tokens": 7, "output_tokens_details": { "thinking_tokens": 3 },
            "server_tool_use": { "web_search_requests": 2 },
        }));

        assert_eq!(usage.input_tokens, Some(1110));
        assert_eq!(usage.total_tokens, Some(1117));
        assert_eq!(usage.cached_content_tokens, Some(1000));
        assert_eq!(usage.thoughts_tokens, Some(3));
        let custom = usage.custom.unwrap();
        assert_eq!(custom["ephemeral_1h_input_tokens"], 60.into());
        assert_eq!(custom["web_search_requests"], 2.into());
    }
}
