//! The input of the generate action: a generation that a client, a prompt or the Dev UI describes by name.
//!
//! Clients write it by hand, so an unknown field is an error and not ignored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Answers, Document, JsonObject, Messages, ToolChoice};

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
    /// Whether the model may, must or must not call tools.
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
    /// Whether to return tool requests to the caller instead of running the tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_tool_requests: Option<bool>,
    /// The number of rounds in which tools may run.
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

/// The output that [`GenerateActionOptions`] request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GenerateActionOutputConfig {
    /// The name of the output format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The MIME type of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether, and with which text, the prompt describes the format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<OutputInstructions>,
    /// The JSON Schema of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema: Option<Value>,
    /// Whether the provider should enforce the schema; `None` leaves it to the format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constrained: Option<bool>,
}

/// Whether, and with which text, a prompt describes the output format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OutputInstructions {
    /// The format's own text, or none.
    Enabled(bool),
    /// This text.
    Text(String),
}

everturn_core::conversions! {
    From<bool> for OutputInstructions: |enabled| Self::Enabled(enabled);
    From<&str> for OutputInstructions: |text| Self::Text(text.to_owned());
    From<String> for OutputInstructions: |text| Self::Text(text);
}

/// A middleware to use, by name, with its configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MiddlewareRef {
    /// The name under which the middleware is registered.
    pub name: String,
    /// Its configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

impl MiddlewareRef {
    /// Creates a reference without configuration.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            config: None,
        }
    }

    everturn_core::setters! {
        /// Sets the configuration.
        pub fn with_config(mut self, config: impl Into<Value>) { self.config = Some(config.into()) }
    }
}

/// The description of a middleware for tools and people.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MiddlewareDesc {
    /// The name under which the middleware is registered.
    pub name: String,
    /// The description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// Anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}
