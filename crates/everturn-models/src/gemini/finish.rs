//! The finish reason and the token counts of an answer.

use std::collections::BTreeMap;

use everturn_ai::{FinishReason, Usage};
use serde_json::{Number, Value};

/// Converts a `finishReason`.
pub(super) fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => FinishReason::Blocked,
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE"
        | "NO_IMAGE"
        | "IMAGE_OTHER"
        | "OTHER"
        | "CONTINUATION" => FinishReason::Other,
        _ => FinishReason::Unknown,
    }
}

/// Reads the counts of a `usageMetadata` object. Gemini does not count thoughts as output; the result does.
pub(super) fn usage(wire: &Value) -> Usage {
    let count = |key: &str| wire.get(key).and_then(Value::as_u64);
    let thoughts = count("thoughtsTokenCount");
    let output = match (count("candidatesTokenCount"), thoughts) {
        (None, None) => None,
        (answer, thoughts) => Some(answer.unwrap_or_default() + thoughts.unwrap_or_default()),
    };
    let custom = custom_counts(wire);
    Usage {
        input_tokens: count("promptTokenCount"),
        output_tokens: output,
        total_tokens: count("totalTokenCount"),
        thoughts_tokens: thoughts,
        cached_content_tokens: count("cachedContentTokenCount"),
        custom: (!custom.is_empty()).then_some(custom),
        ..Usage::default()
    }
}

/// Reads the counts that only Gemini has: the prompt of its built-in tools, and tokens by modality, such as
/// `promptTokensDetails.IMAGE`.
fn custom_counts(wire: &Value) -> BTreeMap<String, Number> {
    let mut counts = BTreeMap::new();
    let members = wire.as_object().into_iter().flatten();
    for (key, value) in members {
        match value {
            Value::Number(number) if key == "toolUsePromptTokenCount" => {
                counts.insert(key.clone(), number.clone());
            }
            Value::Array(details) => {
                for detail in details {
                    if let (Some(modality), Value::Number(number)) =
                        (detail["modality"].as_str(), &detail["tokenCount"])
                    {
                        counts.insert(format!("{key}.{modality}"), number.clone());
                    }
                }
            }
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_reason_has_a_finish_reason() {
        let cases = [
            ("STOP", FinishReason::Stop),
            ("MAX_TOKENS", FinishReason::Length),
            ("SAFETY", FinishReason::Blocked),
            ("IMAGE_RECITATION", FinishReason::Blocked),
            ("MALFORMED_FUNCTION_CALL", FinishReason::Other),
            ("MISSING_THOUGHT_SIGNATURE", FinishReason::Other),
            ("SOMETHING_NEW", FinishReason::Unknown),
        ];
        for (reason, expected) in cases {
            assert_eq!(finish_reason(reason), expected, "{reason}");
        }
    }

    #[test]
    fn thoughts_are_part_of_the_output() {
        let usage = usage(&json!({
            "promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 22,
            "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 2,
            "promptTokensDetails": [{ "modality": "IMAGE", "tokenCount": 6 }],
        }));

        assert_eq!(usage.input_tokens, Some(10));
        assert_eq!(usage.output_tokens, Some(12));
        assert_eq!(usage.thoughts_tokens, Some(7));
        assert_eq!(usage.cached_content_tokens, Some(4));
        let custom = usage.custom.unwrap();
        assert_eq!(custom["toolUsePromptTokenCount"], 2.into());
        assert_eq!(custom["promptTokensDetails.IMAGE"], 6.into());
    }
}
