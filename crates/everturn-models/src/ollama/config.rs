//! The settings that Ollama knows.

use everturn_ai::{JsonObject, ModelRequest};
use everturn_core::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ApiKey;
use crate::settings::Settings;

/// Settings of a request to Ollama. Whatever else is set goes into the options of the model as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OllamaConfig {
    /// How much chance there is in the choice of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How much of the probability is considered at each step.
    #[serde(rename = "topP", skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// How many tokens are considered at each step.
    #[serde(rename = "topK", skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// The most tokens that the answer may have.
    #[serde(rename = "maxOutputTokens", skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Texts that end the answer.
    #[serde(rename = "stopSequences", skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// How many tokens of the conversation the model sees; the server's own choice is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u64>,
    /// A number that makes chance repeatable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Whether the model thinks before it answers: `true`, `false`, or how much, such as `"low"`. A model that cannot
    /// refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think: Option<Value>,
    /// How long the model stays loaded after the call: `"5m"`, a number of seconds, `0`, `-1` for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Value>,
    /// An API key for this call, instead of the plugin's.
    #[serde(rename = "apiKey", skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
    /// Everything else, under the names of Ollama's options.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Settings that stand beside the messages, not among the options.
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

/// The settings of a request and the model it is for.
///
/// # Errors
/// `INVALID_ARGUMENT` for a setting that only the request itself may fill.
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
