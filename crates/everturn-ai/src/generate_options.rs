//! The input of the generate action: a generation that a client, a prompt or the Dev UI describes by name.
//!
//! Clients write these by hand, so an unknown field is an error and not silently ignored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Answers, Document, Messages, MiddlewareRef, ToolChoice};

/// A whole generation, with models, tools, resources and middleware by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GenerateActionOptions {
    /// The model; the default one if not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Documents to answer from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docs: Option<Vec<Document>>,
    /// The conversation.
    pub messages: Messages,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The resources that messages may link to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<String>>,
    /// How free the model is to call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Settings for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// The form of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<GenerateActionOutputConfig>,
    /// Answers to interrupted tool requests of the last message; `resume` on the wire.
    #[serde(rename = "resume", skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    /// Whether to give tool requests back instead of running the tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_tool_requests: Option<bool>,
    /// How often tools may be run before the model has to be done.
    // A model call with its tool calls is a round here and a turn on the wire.
    #[serde(rename = "maxTurns", skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// The name of the step in traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_name: Option<String>,
    /// The middleware, outermost first.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub middleware: Option<Vec<MiddlewareRef>>,
}

/// The output that a [`GenerateActionOptions`] asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GenerateActionOutputConfig {
    /// The name of the output format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The MIME type of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether the model is told the format in words, and in which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<OutputInstructions>,
    /// The JSON Schema of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema: Option<Value>,
    /// Whether the provider should enforce the schema; `None` leaves it to the format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constrained: Option<bool>,
}

/// Whether a model is told the output format in words, and in which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OutputInstructions {
    /// The format's own words, or none.
    Enabled(bool),
    /// These words.
    Text(String),
}

impl From<bool> for OutputInstructions {
    fn from(enabled: bool) -> Self {
        Self::Enabled(enabled)
    }
}

impl From<&str> for OutputInstructions {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for OutputInstructions {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
