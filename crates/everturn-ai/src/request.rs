//! What a model is asked.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Document, Messages, OutputConfig, ToolChoice, ToolDefinition};

/// A request to a model. A clone shares messages, tools and documents with the original.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "GenerateRequest")]
pub struct ModelRequest {
    /// The conversation.
    pub messages: Messages,
    /// Settings for the model: the common ones, and any that the provider knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<[ToolDefinition]>>,
    /// How free the model is to call them.
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
    /// A request with these messages and nothing else.
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self {
            messages: messages.into(),
            ..Self::default()
        }
    }

    /// The tools, none if the request names none.
    pub fn tools(&self) -> &[ToolDefinition] {
        self.tools.as_deref().unwrap_or_default()
    }

    /// The documents, none if the request names none.
    pub fn docs(&self) -> &[Document] {
        self.docs.as_deref().unwrap_or_default()
    }

    /// One setting of the configuration.
    pub fn config_entry(&self, key: &str) -> Option<&Value> {
        self.config.as_ref()?.get(key)
    }
}
