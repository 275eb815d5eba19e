//! Responses of models and the chunks of a streamed one: the answer, why it ended, and the operation that a
//! background model returns instead.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::joined;
use crate::{Content, JsonObject, Media, Message, ModelRequest, Part, Role, ToolRequest, Usage, number};

/// A model's response, or the operation that will produce it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", from = "WireResponse")]
#[schemars(rename = "GenerateResponse", !from)]
pub struct ModelResponse {
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// Why the answer ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Details of the finish reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_message: Option<String>,
    /// How long the model took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number::serialize")]
    pub latency_ms: Option<f64>,
    /// The usage of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The provider's own data; an older name of `raw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<Value>,
    /// The provider's own response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
    /// The request that was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<ModelRequest>>,
    /// The operation to wait for, from a model that works in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Box<Operation>>,
}

impl ModelResponse {
    /// Creates a complete answer.
    pub fn new(message: impl Into<Message>) -> Self {
        Self {
            message: Some(message.into()),
            finish_reason: Some(FinishReason::Stop),
            ..Self::default()
        }
    }

    /// Creates a complete answer of one text.
    pub fn text_of(text: impl Into<String>) -> Self {
        Self::new(Message::model(text.into()))
    }

    everturn_core::setters! {
        /// Sets the finish reason.
        pub fn with_finish_reason(mut self, reason: FinishReason) { self.finish_reason = Some(reason) }

        /// Sets the usage of the call.
        pub fn with_usage(mut self, usage: Usage) { self.usage = Some(usage) }
    }

    /// Returns the text of the answer; empty if there is none.
    pub fn text(&self) -> Cow<'_, str> {
        self.message.as_ref().map(Message::text).unwrap_or_default()
    }
}

/// The response as other runtimes may write it: the answer may be in the first of the deprecated
/// `candidates`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse {
    message: Option<Message>,
    finish_reason: Option<FinishReason>,
    finish_message: Option<String>,
    latency_ms: Option<f64>,
    usage: Option<Usage>,
    custom: Option<Value>,
    raw: Option<Value>,
    request: Option<Box<ModelRequest>>,
    operation: Option<Box<Operation>>,
    #[serde(default)]
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    message: Message,
    finish_reason: Option<FinishReason>,
    finish_message: Option<String>,
    usage: Option<Usage>,
    custom: Option<Value>,
}

impl From<WireResponse> for ModelResponse {
    fn from(wire: WireResponse) -> Self {
        let response = Self {
            message: wire.message,
            finish_reason: wire.finish_reason,
            finish_message: wire.finish_message,
            latency_ms: wire.latency_ms,
            usage: wire.usage,
            custom: wire.custom,
            raw: wire.raw,
            request: wire.request,
            operation: wire.operation,
        };
        match wire.candidates.into_iter().next() {
            Some(candidate) if response.message.is_none() => Self {
                message: Some(candidate.message),
                finish_reason: response.finish_reason.or(candidate.finish_reason),
                finish_message: response.finish_message.or(candidate.finish_message),
                usage: response.usage.or(candidate.usage),
                custom: response.custom.or(candidate.custom),
                ..response
            },
            _ => response,
        }
    }
}

/// Why a model's answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The limit on the answer's length was reached.
    Length,
    /// The provider blocked the answer.
    Blocked,
    /// The call was cancelled.
    Aborted,
    /// The call failed.
    Failed,
    /// A tool was interrupted and waits for an answer.
    Interrupted,
    /// Another reason that the provider gave.
    Other,
    /// The provider gave no reason, or one that this version does not know.
    #[serde(other)]
    Unknown,
}

/// A long-running operation: its state and, once it is done, its result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// The key of the action that started the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The provider's name for the operation.
    pub id: String,
    /// Whether it has ended, successfully or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<bool>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
    /// Other data of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// Why an [`Operation`] failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperationError {
    /// The description of the failure.
    pub message: String,
    /// Other data of the provider about it.
    #[serde(flatten)]
    pub details: JsonObject,
}

/// A piece of a streamed answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GenerateResponseChunk")]
pub struct ModelResponseChunk {
    /// The role of the message; a model if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The index of the message that the chunk belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The new content, or all content so far if [`aggregated`](Self::aggregated).
    pub content: Vec<Part>,
    /// The provider's own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<Value>,
    /// Whether the chunk repeats all previous content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
}

impl ModelResponseChunk {
    /// Creates a chunk with this content.
    pub fn new(content: impl Into<Content>) -> Self {
        Self {
            content: content.into().into_parts(),
            ..Self::default()
        }
    }

    /// Returns the text of this chunk.
    pub fn text(&self) -> Cow<'_, str> {
        joined(self.content.iter().filter_map(Part::as_text))
    }

    /// Returns the reasoning in this chunk.
    pub fn reasoning(&self) -> Cow<'_, str> {
        joined(self.content.iter().filter_map(Part::as_reasoning))
    }

    /// Returns the media in this chunk.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.content.iter().filter_map(Part::as_media)
    }

    /// Returns the first JSON value of a data part of this chunk.
    pub fn data(&self) -> Option<&Value> {
        self.content.iter().find_map(Part::as_data)
    }

    /// Returns the tool requests in this chunk.
    pub fn tool_requests(&self) -> impl Iterator<Item = &ToolRequest> {
        self.content.iter().filter_map(Part::as_tool_request)
    }
}

everturn_core::conversions! {
    From<&str> for ModelResponseChunk: |text| Self::new(text);
    From<Part> for ModelResponseChunk: |part| Self::new(part);
}
