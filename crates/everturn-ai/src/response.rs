//! What a model answered.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{FinishReason, Message, ModelRequest, Operation, Usage, number};

/// A model's answer, or the operation that will bring it.
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
    /// More about why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_message: Option<String>,
    /// How long the model took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number::serialize")]
    pub latency_ms: Option<f64>,
    /// What the call used.
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
    /// A complete answer.
    pub fn new(message: impl Into<Message>) -> Self {
        Self {
            message: Some(message.into()),
            finish_reason: Some(FinishReason::Stop),
            ..Self::default()
        }
    }

    /// A complete answer of one text.
    pub fn text_of(text: impl Into<String>) -> Self {
        Self::new(Message::model(text.into()))
    }

    /// The same answer with another finish reason.
    pub fn with_finish_reason(self, reason: FinishReason) -> Self {
        Self {
            finish_reason: Some(reason),
            ..self
        }
    }

    /// The same answer with what the call used.
    pub fn with_usage(self, usage: Usage) -> Self {
        Self {
            usage: Some(usage),
            ..self
        }
    }

    /// The text of the answer; empty if there is none.
    pub fn text(&self) -> Cow<'_, str> {
        self.message.as_ref().map(Message::text).unwrap_or_default()
    }
}

/// The response as other runtimes may write it: the answer may be in the first of the deprecated `candidates`.
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
