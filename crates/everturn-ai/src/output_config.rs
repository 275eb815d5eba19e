//! What form of output a model is asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The output that a [`ModelRequest`](crate::ModelRequest) asks for.
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
