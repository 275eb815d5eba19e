//! One model of the provider.

use everturn_ai::{
    JsonObject, Message, Model, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk, Part, Usage,
};
use everturn_core::{Context, Emitter, Error, HandlerResult, Result, Schema};
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::Listed;
use super::config::AnthropicConfig;
use super::conversation::answer_blocks;
use super::family::Family;
use super::request::WireRequest;
use super::stream::{Answer, Assembly};
use crate::event_stream::Events;
use crate::service::{Call, Service};
use crate::usage::sum;
use crate::wire_tools::WireTools;

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
