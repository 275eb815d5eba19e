//! The reasons for the end of a turn or an invocation.

use everturn_ai::FinishReason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reason why a turn, a run or an invocation ended: the model's reasons and three of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AgentFinishReason {
    /// The model completed its answer.
    Stop,
    /// The model reached its limit.
    Length,
    /// The model's provider refused.
    Blocked,
    /// A tool waits for an answer from outside.
    Interrupted,
    /// Something else.
    Other,
    /// The run was aborted.
    Aborted,
    /// The client left; the work continues.
    Detached,
    /// The turn or the agent failed.
    Failed,
    /// No reason was given, or one unknown to this version.
    #[serde(other)]
    Unknown,
}

impl AgentFinishReason {
    /// Returns the word for the reason on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Blocked => "blocked",
            Self::Interrupted => "interrupted",
            Self::Other => "other",
            Self::Aborted => "aborted",
            Self::Detached => "detached",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl From<FinishReason> for AgentFinishReason {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop => Self::Stop,
            FinishReason::Length => Self::Length,
            FinishReason::Blocked => Self::Blocked,
            FinishReason::Aborted => Self::Aborted,
            FinishReason::Failed => Self::Failed,
            FinishReason::Interrupted => Self::Interrupted,
            FinishReason::Other => Self::Other,
            FinishReason::Unknown => Self::Unknown,
        }
    }
}
