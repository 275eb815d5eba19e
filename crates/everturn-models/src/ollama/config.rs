//! The settings of Ollama's models.

use everturn_ai::{JsonObject, ModelRequest};
use everturn_core::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ApiKey;
use crate::settings::Settings;

/// Settings of a request to Ollama. Unlisted settings are sent unchanged as options of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OllamaConfig {
    /// The randomness of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The cumulative probability of the tokens considered at each step.
    #[serde(rename = "topP", skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The number of tokens considered at each step.
    #[serde(rename = "topK", skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// The most tokens that the answer may have.
    #[serde(rename = "maxOutputTokens", skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Texts that end the answer.
    #[serde(rename = "stopSequences", skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// The size of the context window in tokens; the server's default is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u64>,
    /// The seed for reproducible output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Whether the model thinks before it answers: `true`, `false`, or how much, such as `"low"`. A model
    /// without thinking rejects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think: Option<Value>,
    /// How long the model stays loaded after the call: `"5m"`, a number of seconds, `0`, or `-1` for no
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Value>,
    /// An API key for this call, instead of the plugin's.
    #[serde(rename = "apiKey", skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
    /// Everything else, under the names of Ollama's options.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Top-level settings, which are not among the options.
const TOP_LEVEL: [(&str, &str); 6] = [
    ("think", "think"),
    ("keep_alive", "keep_alive"),
    ("format", "format"),
    ("logprobs", "logprobs"),
    ("truncate", "truncate"),
    ("shift", "shift"),
];

const OPTIONS: [(&str, &str); 5] = [
    ("temperature", "temperature"),
    ("topP", "top_p"),
    ("topK", "top_k"),
    ("maxOutputTokens", "num_predict"),
    ("stopSequences", "stop"),
];

/// Returns the settings of a request and its model.
///
/// # Errors
/// `INVALID_ARGUMENT` for a reserved setting.
pub(super) fn of(request: &ModelRequest, id: &str) -> Result<(Settings, String)> {
    let mut settings = Settings::of(request, &["messages", "stream", "model"])?;
    let model = settings.take_text("version")?.unwrap_or_else(|| id.to_owned());
    Ok((settings, model))
}

/// Moves settings into a body.
pub(super) fn into_body(mut settings: Settings, body: &mut JsonObject) {
    settings.move_to(body, &TOP_LEVEL);
    let mut options = JsonObject::new();
    settings.move_to(&mut options, &OPTIONS);
    match settings.take("options") {
        Some(Value::Object(own)) => options.extend(own),
        Some(other) => drop(options.insert("options".to_owned(), other)),
        None => {}
    }
    settings.move_rest_to(&mut options);
    if !options.is_empty() {
        body.insert("options".to_owned(), options.into());
    }
}
