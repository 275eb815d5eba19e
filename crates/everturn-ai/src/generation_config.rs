//! The settings that most models understand.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{JsonObject, number};

/// Common model settings; whatever else is set is passed to the provider untouched.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "GenerationCommonConfig")]
pub struct GenerationConfig {
    /// A version of the model family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How much chance there is in the choice of tokens.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number::serialize")]
    pub temperature: Option<f64>,
    /// The most tokens that the answer may have.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "number::count")]
    pub max_output_tokens: Option<u64>,
    /// How many tokens are considered at each step.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number::serialize")]
    pub top_k: Option<f64>,
    /// How much of the probability is considered at each step.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number::serialize")]
    pub top_p: Option<f64>,
    /// Texts that end the answer, five at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// An API key for this call, instead of the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Settings that only the provider knows.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Leaves the API key out: settings are printed in logs.
impl fmt::Debug for GenerationConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GenerationConfig")
            .field("version", &self.version)
            .field("temperature", &self.temperature)
            .field("max_output_tokens", &self.max_output_tokens)
            .field("top_k", &self.top_k)
            .field("top_p", &self.top_p)
            .field("stop_sequences", &self.stop_sequences)
            .field("api_key", &self.api_key.as_ref().map(|_| "..."))
            .field("extra", &self.extra)
            .finish()
    }
}
