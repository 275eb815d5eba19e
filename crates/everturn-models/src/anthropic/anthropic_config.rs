//! The settings of Claude models.

use everturn_ai::{JsonObject, Part};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ApiKey;

/// Settings of a Claude model. Unlisted settings go into [`extra`](Self::extra) and are sent unchanged.
///
/// The schema that the model advertises is wider than these types, so that it accepts future settings of the
/// API.
///
/// ```
/// use everturn_models::anthropic::{AnthropicConfig, Effort, Thinking};
///
/// let config = AnthropicConfig {
///     max_output_tokens: Some(32_000),
///     thinking: Some(Thinking::adaptive()),
///     effort: Some(Effort::High),
///     ..AnthropicConfig::default()
/// };
/// assert_eq!(
///     serde_json::to_value(config).unwrap(),
///     serde_json::json!({ "maxOutputTokens": 32_000, "thinking": { "type": "adaptive" }, "effort": "high" })
/// );
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AnthropicConfig {
    /// The model to use instead of the one that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The most tokens of the answer, including its thinking; 16,384 if not given. `0` only warms the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// The randomness of the output. Models after Opus 4.6 reject it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The number of tokens considered at each step. Models after Opus 4.6 reject it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// The cumulative probability of the tokens considered at each step. Models after Opus 4.6 reject it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// Whether, and how much, the model thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<JsonObject>")]
    pub thinking: Option<Thinking>,
    /// The effort that the model puts into the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub effort: Option<Effort>,
    /// Caches the request up to its last block.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub cache_control: Option<CacheControl>,
    /// Server tools and other tools in the form of the API, beside those of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// Beta features to enable, for the header `anthropic-beta`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub betas: Option<Vec<String>>,
    /// The version of the API, for the header `anthropic-version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anthropic_version: Option<String>,
    /// An API key for this call, instead of the plugin's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
    /// Everything else, under the names of the API.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// How a model thinks before it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Thinking {
    /// As much as the model considers necessary.
    Adaptive {
        /// Whether the thinking is shown.
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// Up to a number of tokens; for models before Opus 4.7.
    Enabled {
        /// The most tokens; at least 1,024 and fewer than the answer may have.
        budget_tokens: u64,
        /// Whether the thinking is shown.
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// Not at all.
    Disabled,
    /// Only between calls of tools.
    BetweenTools,
}

impl Thinking {
    /// Returns thinking of a length that the model chooses.
    pub fn adaptive() -> Self {
        Self::Adaptive { display: None }
    }

    /// Returns thinking of up to `tokens` tokens.
    pub fn budget(tokens: u64) -> Self {
        Self::Enabled {
            budget_tokens: tokens,
            display: None,
        }
    }
}

/// Whether thinking is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ThinkingDisplay {
    /// A summary of it.
    Summarized,
    /// Only its signature.
    Omitted,
}

/// The effort that a model puts into an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Effort {
    /// Lowest.
    Low,
    /// Medium.
    Medium,
    /// High.
    High,
    /// Very high.
    Xhigh,
    /// Highest.
    Max,
}

/// A breakpoint of the prompt cache: everything before it, and the marked block itself, is cached.
///
/// A request may have four.
///
/// ```
/// use everturn_ai::Part;
/// use everturn_models::anthropic::CacheControl;
///
/// let manual = CacheControl::for_an_hour().mark(Part::text("The whole manual: ..."));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheControl {
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<String>,
}

impl CacheControl {
    /// Returns a cache that lives for five minutes after its last use.
    pub fn ephemeral() -> Self {
        Self {
            kind: "ephemeral".to_owned(),
            ttl: None,
        }
    }

    /// Returns a cache that lives for an hour after its last use.
    pub fn for_an_hour() -> Self {
        Self {
            ttl: Some("1h".to_owned()),
            ..Self::ephemeral()
        }
    }

    /// Returns the part with this breakpoint after it. It is not sent to other providers.
    pub fn mark(&self, part: impl Into<Part>) -> Part {
        let mark = serde_json::to_value(self).unwrap_or_default();
        part.into().with_metadata_entry("cache_control", mark)
    }
}
