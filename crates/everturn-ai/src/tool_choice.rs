//! Whether a model may, must or must not call tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How free a model is to call the tools that it is given.
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
