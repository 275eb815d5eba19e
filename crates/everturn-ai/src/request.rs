//! Requests to models: the conversation, and the tools, output and settings that go with it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Document, JsonObject, Messages, number};

/// A request to a model. A clone shares messages, tools and documents with the original.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "GenerateRequest")]
pub struct ModelRequest {
    /// The conversation.
    pub messages: Messages,
    /// Settings for the model: the common ones, and any that the provider has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<[ToolDefinition]>>,
    /// Whether the model may, must or must not call them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// The form of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputConfig>,
    /// Documents to answer from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docs: Option<Arc<[Document]>>,
}

impl ModelRequest {
    /// Creates a request with these messages and nothing else.
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self {
            messages: messages.into(),
            ..Self::default()
        }
    }

    /// Returns the tools, none if the request names none.
    pub fn tools(&self) -> &[ToolDefinition] {
        self.tools.as_deref().unwrap_or_default()
    }

    /// Returns the documents, none if the request names none.
    pub fn docs(&self) -> &[Document] {
        self.docs.as_deref().unwrap_or_default()
    }

    /// Returns one setting of the configuration.
    pub fn config_entry(&self, key: &str) -> Option<&Value> {
        self.config.as_ref()?.get(key)
    }
}

/// Merges settings over others, key by key; settings that are not objects replace the others.
pub(crate) fn laid_over(base: Option<Value>, top: Value) -> Value {
    match (base, top) {
        (Some(Value::Object(mut base)), Value::Object(top)) => {
            base.extend(top);
            Value::Object(base)
        }
        (_, top) => top,
    }
}

/// The description of a tool for a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// The name by which the model calls the tool.
    pub name: String,
    /// The purpose of the tool.
    pub description: String,
    /// The JSON Schema of the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// The JSON Schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The registry key of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Anything else, for instance `originalName` or `strict`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// Whether a model may, must or must not call tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model must call a tool.
    Required,
    /// The model must not call a tool.
    None,
}

/// The output that a [`ModelRequest`](crate::ModelRequest) requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputConfig {
    /// The name of the output format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The JSON Schema of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Whether the provider should enforce the schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constrained: Option<bool>,
    /// The MIME type of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// Common model settings; other settings are passed to the provider unchanged.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "GenerationCommonConfig")]
pub struct GenerationConfig {
    /// A version of the model family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The randomness of the output.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number::serialize")]
    pub temperature: Option<f64>,
    /// The most tokens that the answer may have.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub max_output_tokens: Option<u64>,
    /// The number of tokens considered at each step.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number::serialize")]
    pub top_k: Option<f64>,
    /// The cumulative probability of the tokens considered at each step.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number::serialize")]
    pub top_p: Option<f64>,
    /// Texts that end the answer, five at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// An API key for this call, instead of the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Settings that only the provider has.
    #[serde(flatten)]
    pub extra: JsonObject,
}

// Leaves the API key out: settings are printed in logs.
everturn_core::opaque_debug!(
    GenerationConfig,
    version,
    temperature,
    max_output_tokens,
    top_k,
    top_p,
    stop_sequences,
    extra
);
