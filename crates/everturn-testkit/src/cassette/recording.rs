//! One recorded call.

use everturn_ai::{ModelResponse, ModelResponseChunk};
use everturn_core::{Error, Exposure, Result, RuntimeError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request, the chunks that the model streamed, and its outcome.
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
    /// Returns the response without its copy of the request and without its latency, which would be wrong on
    /// replay.
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
