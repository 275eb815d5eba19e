//! One recorded call.

use everturn_ai::{ModelResponse, ModelResponseChunk};
use everturn_core::{Error, Exposure, Result, RuntimeError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a model was asked, what it streamed, and how it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Recording {
    pub(crate) model: String,
    /// The request in its canonical form.
    pub(crate) request: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) chunks: Vec<ModelResponseChunk>,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Response(Box<ModelResponse>),
    Error(RuntimeError),
}

impl Outcome {
    /// What is worth keeping: not the request again, and no time that would be another's when played.
    pub(crate) fn of(result: &Result<ModelResponse>) -> Self {
        match result {
            Ok(response) => Self::Response(Box::new(ModelResponse {
                request: None,
                latency_ms: None,
                ..response.clone()
            })),
            Err(error) => Self::Error(error.to_wire(Exposure::Full)),
        }
    }

    pub(crate) fn into_result(self) -> Result<ModelResponse> {
        match self {
            Self::Response(response) => Ok(*response),
            Self::Error(error) => Err(Error::from(error)),
        }
    }
}
