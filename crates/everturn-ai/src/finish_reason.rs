//! Why a model stopped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a model's answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The limit on the answer's length was reached.
    Length,
    /// The provider refused to answer.
    Blocked,
    /// The call was cancelled.
    Aborted,
    /// A tool was interrupted and waits for an answer.
    Interrupted,
    /// Another reason that the provider gave.
    Other,
    /// The provider gave no reason, or one that this version does not know.
    #[serde(other)]
    Unknown,
}
