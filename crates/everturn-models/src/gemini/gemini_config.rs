//! The settings of Gemini models and embedders.

use everturn_ai::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ApiKey;

/// Settings of a Gemini model. Unlisted settings go into [`extra`](Self::extra) and are sent unchanged, as
/// fields of the `generationConfig` or of the request.
///
/// The schema that the model advertises is wider than these types, so that it accepts future settings of the
/// API.
///
/// ```
/// use everturn_models::gemini::{GeminiConfig, ThinkingConfig, ThinkingLevel};
///
/// let config = GeminiConfig {
///     temperature: Some(0.0),
///     thinking_config: Some(ThinkingConfig {
///         include_thoughts: Some(true),
///         thinking_level: Some(ThinkingLevel::Low),
///         ..ThinkingConfig::default()
///     }),
///     google_search: Some(true),
///     ..GeminiConfig::default()
/// };
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GeminiConfig {
    /// The model to use instead of the one that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The randomness of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens of the answer, including its thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// The number of tokens considered at each step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// The cumulative probability of the tokens considered at each step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Texts that end the answer, five at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// How much the model thinks, and whether it shows its thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<JsonObject>")]
    pub thinking_config: Option<ThinkingConfig>,
    /// The content that is blocked, and how strictly: `[{"category": …, "threshold": …}]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<JsonObject>>")]
    pub safety_settings: Option<Vec<SafetySetting>>,
    /// The kinds of content in the answer: `TEXT`, `IMAGE`, `AUDIO`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_modalities: Option<Vec<String>>,
    /// The name of cached content, `cachedContents/…`, at the start of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_content: Option<String>,
    /// Lets the model search the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub google_search: Option<bool>,
    /// Lets the model read the pages behind URLs of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub url_context: Option<bool>,
    /// Lets the model run code of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub code_execution: Option<bool>,
    /// Tools in the form of the API, beside those of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// Sends schemas in the OpenAPI subset, for proxies without support for JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub legacy_schema: Option<bool>,
    /// An API key for this call, instead of the plugin's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
    /// Everything else, under the names of the API.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// How a model thinks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ThinkingConfig {
    /// Whether summaries of the thoughts are part of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_thoughts: Option<bool>,
    /// The number of tokens of thought for Gemini 2.5: 0 for none, -1 for the model's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_budget: Option<i64>,
    /// How much Gemini 3 and later think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<ThinkingLevel>,
    /// Everything else, under the names of the API.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// How much a model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum ThinkingLevel {
    /// Minimal.
    Minimal,
    /// Low.
    Low,
    /// Medium.
    Medium,
    /// High.
    High,
}

/// How strictly one kind of content is blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SafetySetting {
    /// The kind of content, such as `HARM_CATEGORY_HARASSMENT`.
    pub category: String,
    /// The probability from which it is blocked, such as `BLOCK_ONLY_HIGH`.
    pub threshold: String,
}
