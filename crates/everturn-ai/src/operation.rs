//! Work that a provider does in the background.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JsonObject;

/// A long-running operation: where it stands and, once done, what came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// The key of the action that started the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The provider's name for the operation.
    pub id: String,
    /// Whether it has ended, well or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<bool>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
    /// Anything else that the provider tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// Why an [`Operation`] failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperationError {
    /// What went wrong.
    pub message: String,
    /// Whatever else the provider tells about it.
    #[serde(flatten)]
    pub details: JsonObject,
}
