//! One model of the provider.

use std::collections::BTreeMap;

use everturn_ai::{
    FinishReason, JsonObject, Message, Model, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk,
    Part, Usage,
};
use everturn_core::{Context, Emitter, Error, HandlerResult, Result, Schema};
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Number, Value, json};

use super::Listed;
use super::anthropic_config::AnthropicConfig;
use super::claude_family::Family;
use super::conversation::answer_blocks;
use super::message_stream::{Answer, Assembly};
use super::messages_request::WireRequest;
use crate::{Call, Events, Service, WireTools, sum};

/// The number of times that a paused answer is continued.
const MAX_PAUSES: usize = 5;

/// A model with Anthropic's protocol.
#[derive(Debug)]
pub(super) struct Claude {
    service: Service,
    name: String,
    info: ModelInfo,
}

impl Claude {
    /// Creates the model of that name; `listed` is its entry in the provider's list.
    pub(super) fn new(service: Service, name: &str, listed: Option<&Listed>) -> Self {
        let info = ModelInfo {
            label: Some(name.to_owned()),
            supports: Some(Family::of(name).supports()),
            max_input_tokens: Family::of(name).max_input_tokens(),
            ..ModelInfo::default()
        };
        Self {
            service,
            name: name.to_owned(),
            info: match listed {
                Some(listed) => listed.refine(info),
                None => info,
            },
        }
    }

    /// Streams one answer.
    async fn stream(
        &self,
        call: &Call<'_>,
        tools: &WireTools,
        emitter: &Emitter<ModelResponseChunk>,
    ) -> Result<Answer> {
        let body = self.service.call(call).await?;
        let request_id = body.request_id();
        let mut events = Events::new(&self.service, body);
        let mut assembly = Assembly::new(tools);
        while !assembly.is_complete() {
            let Some(event) = events.next().await? else {
                return Err(events.truncated("its event `message_stop`"));
            };
            let mut event: Value = events.read(&event)?;
            if event["type"] == "error" {
                return Err(events.failure(&event));
            }
            if let Some(part) = assembly.event(&mut event) {
                emitter.send(ModelResponseChunk::from(part)).await?;
            }
        }
        Ok(assembly.answer(request_id))
    }
}

impl Model for Claude {
    fn info(&self) -> ModelInfo {
        self.info.clone()
    }

    fn config_schema(&self) -> Option<Schema> {
        Some(Schema::of::<AnthropicConfig>())
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let wire = WireRequest::new(&self.name, &request)?;
        let mut call = Call {
            path: "/v1/messages".into(),
            headers: headers(&wire)?,
            body: Some(Value::Object(wire.body)),
            key: wire.key,
        };
        let mut answer = self.stream(&call, &wire.tools, &emitter).await?;
        let mut content = Vec::new();
        let mut usage = Usage::default();
        for _ in 0..MAX_PAUSES {
            if !answer.is_paused() {
                break;
            }
            if let Some(body) = call.body.as_mut() {
                go_on(body, &answer, &wire.tools);
            }
            content.append(&mut answer.content);
            usage = sum(usage, &answer.usage);
            answer = self.stream(&call, &wire.tools, &emitter).await?;
        }
        Ok(response(answer, content, usage))
    }
}

/// Creates the headers of the protocol.
fn headers(wire: &WireRequest) -> Result<HeaderMap> {
    let value = |text: &str| {
        HeaderValue::from_str(text)
            .map_err(|_| Error::invalid_argument(format!("'{text}' cannot be sent as a header to Anthropic")))
    };
    let mut headers = HeaderMap::new();
    headers.insert("anthropic-version", value(&wire.version)?);
    if let Some(betas) = &wire.betas {
        headers.insert("anthropic-beta", value(betas)?);
    }
    Ok(headers)
}

/// Appends a paused answer to the request, so that the model continues it.
fn go_on(body: &mut Value, answer: &Answer, tools: &WireTools) {
    let blocks = answer_blocks(&answer.content, tools);
    let container = answer
        .message
        .get("container")
        .and_then(|container| container.get("id"));
    if let (Some(id), None) = (container, body.get("container")) {
        body["container"] = id.clone();
    }
    let Some(Value::Array(messages)) = body.get_mut("messages") else {
        return;
    };
    match messages.last_mut() {
        Some(last) if last["role"] == "assistant" => {
            if let Some(content) = last["content"].as_array_mut() {
                content.extend(blocks);
            }
        }
        _ => messages.push(json!({ "role": "assistant", "content": blocks })),
    }
}

/// Creates the response of one or more streams; `content` and `usage` are those of the streams before the
/// last.
fn response(answer: Answer, mut content: Vec<Part>, usage: Usage) -> ModelResponse {
    content.extend(answer.content);
    let custom: JsonObject = answer.message;
    ModelResponse {
        message: Some(Message::model(content)),
        finish_reason: Some(answer.finish_reason),
        finish_message: answer.finish_message,
        usage: Some(sum(usage, &answer.usage)),
        custom: Some(custom.into()),
        ..ModelResponse::default()
    }
}

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
