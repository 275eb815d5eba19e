//! One model of the provider.

use std::collections::BTreeMap;

use everturn_ai::{FinishReason, Model, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, Usage};
use everturn_core::{Context, Emitter, HandlerResult, Result, Schema, Status};
use serde_json::{Number, Value};

use super::content_request::WireRequest;
use super::content_stream::Assembly;
use super::gemini_config::GeminiConfig;
use super::gemini_family::Family;
use super::{Listed, method_path};
use crate::{Call, Events, Service};

/// The number of times that an answer is continued.
const MAX_CONTINUATIONS: usize = 5;

/// A model behind `generateContent`.
#[derive(Debug)]
pub(super) struct GeminiModel {
    service: Service,
    name: String,
    info: ModelInfo,
}

impl GeminiModel {
    /// Creates the model of that name; `listed` is its entry in the provider's list.
    pub(super) fn new(service: Service, name: &str, listed: Option<&Listed>) -> Self {
        let label = listed.and_then(Listed::label).unwrap_or(name);
        Self {
            service,
            name: name.to_owned(),
            info: ModelInfo {
                label: Some(label.to_owned()),
                supports: Some(Family::of(name).supports()),
                max_input_tokens: listed
                    .and_then(Listed::max_input_tokens)
                    .or_else(|| Some(Family::of(name).max_input_tokens())),
                ..ModelInfo::default()
            },
        }
    }

    /// Streams an answer, or the continuation of one.
    async fn stream(
        &self,
        call: &Call<'_>,
        assembly: &mut Assembly<'_>,
        emitter: &Emitter<ModelResponseChunk>,
    ) -> Result<()> {
        let body = self.service.call(call).await?;
        let mut events = Events::new(&self.service, body);
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                // A connection that breaks after the end of the answer loses nothing.
                _ if assembly.is_complete() => return Ok(()),
                // Gemini sends an empty stream when it is overloaded.
                Ok(None) if events.is_blank() => {
                    return Err(events.broken(Status::Unavailable, "the stream was empty"));
                }
                Ok(None) => return Err(events.truncated("the reason why it finished")),
                Err(error) => return Err(error),
            };
            let event: Value = events.read(&event)?;
            if event.get("error").is_some_and(|error| !error.is_null()) {
                return Err(events.failure(&event));
            }
            let parts = assembly.event(event);
            if !parts.is_empty() {
                emitter.send(ModelResponseChunk::new(parts)).await?;
            }
        }
    }
}

impl Model for GeminiModel {
    fn info(&self) -> ModelInfo {
        self.info.clone()
    }

    fn config_schema(&self) -> Option<Schema> {
        Some(Schema::of::<GeminiConfig>())
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let wire = WireRequest::new(&self.name, &request)?;
        let mut call = Call {
            path: format!("{}?alt=sse", method_path(&wire.model, "streamGenerateContent")).into(),
            body: Some(Value::Object(wire.body)),
            key: wire.key,
            ..Call::default()
        };
        let mut assembly = Assembly::new(&wire.tools);
        self.stream(&call, &mut assembly, &emitter).await?;
        for _ in 0..MAX_CONTINUATIONS {
            let Some(token) = assembly.continuation() else {
                break;
            };
            if let Some(body) = call.body.as_mut() {
                body["continuationToken"] = token;
            }
            assembly.resume();
            self.stream(&call, &mut assembly, &emitter).await?;
        }
        Ok(assembly.answer())
    }
}

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
