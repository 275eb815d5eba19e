//! The settings of OpenAI's models.

use everturn_ai::{JsonObject, ModelRequest};
use everturn_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dialect::{Dialect, is_reasoning};
use crate::{ApiKey, Settings, is_new};

/// Settings of a request to OpenAI or a compatible server. Other settings are sent unchanged, and the wire's
/// own names may be used too.
///
/// ```
/// use everturn_models::OpenAiConfig;
///
/// let config = OpenAiConfig {
///     reasoning_effort: Some("high".to_owned()),
///     max_output_tokens: Some(2000),
///     ..OpenAiConfig::default()
/// };
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenAiConfig {
    /// Another name for the model, such as one with a date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The randomness of the output. Reasoning models reject it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The cumulative probability of the tokens considered at each step. Reasoning models reject it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The most tokens that the answer may have, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Texts that end the answer, four at most. Chat Completions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// The reasoning effort: `none`, `minimal`, `low`, `medium`, `high`, or another value of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// The summary of the reasoning: `auto`, `concise` or `detailed`. Responses only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_summary: Option<String>,
    /// The length of answers: `low`, `medium` or `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<String>,
    /// Whether several tools may be called at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Tools that the provider runs itself, in the wire's form: `{"type": "web_search"}`. Responses only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// Requests with one key share a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache_key: Option<String>,
    /// The service tier: `auto`, `default`, `flex`, `priority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// The penalty for frequent tokens. Chat Completions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// The penalty for tokens that were used before. Chat Completions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// The seed for reproducible output, on servers that support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Whether `<think>` in the text of the answer is reasoning. Chat Completions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parse_think_tags: Option<bool>,
    /// An API key for this call, instead of the plugin's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
    /// Everything else, under the names of the wire.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// Settings with the same name in both protocols.
const COMMON: [(&str, &str); 6] = [
    ("temperature", "temperature"),
    ("topP", "top_p"),
    ("parallelToolCalls", "parallel_tool_calls"),
    ("promptCacheKey", "prompt_cache_key"),
    ("serviceTier", "service_tier"),
    ("topLogProbs", "top_logprobs"),
];

/// Returns the settings of a request and its model.
///
/// # Errors
/// `INVALID_ARGUMENT` for a reserved setting.
pub(super) fn of(request: &ModelRequest, id: &str) -> Result<(Settings, String)> {
    let mut settings = Settings::of(request, &["messages", "input", "stream", "model"])?;
    if settings.take("n").is_some_and(|n| n != 1) {
        return Err(Error::invalid_argument(
            "'n' in the model's configuration must be 1: there is one answer",
        )
        .with_public());
    }
    let model = settings.take_text("version")?.unwrap_or_else(|| id.to_owned());
    Ok((settings, model))
}

/// Rejects stop sequences, which the Responses API does not support for any model.
///
/// # Errors
/// `INVALID_ARGUMENT` if they are set.
pub(super) fn refuse_stop_sequences(settings: &mut Settings) -> Result<()> {
    if settings.take("stopSequences").is_none() {
        return Ok(());
    }
    let message = "'stopSequences' is not known to the Responses API: leave it out, or use Chat Completions";
    Err(Error::invalid_argument(message).with_public())
}

/// Removes settings that the API would reject for this model.
pub(super) fn avoid_refused(settings: &mut Settings, dialect: Dialect, model: &str) {
    let mut refused: Vec<&str> = Vec::new();
    if dialect.is_openai() || dialect == Dialect::Mistral {
        refused.push("topK");
    }
    if dialect.is_openai() && is_reasoning(model) && !settings.is("reasoningEffort", "none") {
        refused.extend(["temperature", "topP", "stopSequences"]);
    }
    for name in refused {
        if settings.take(name).is_some() && is_new(format!("not taken: {model} {name}")) {
            tracing::warn!(
                model,
                setting = name,
                "the model does not take this setting, so it is left out"
            );
        }
    }
}

/// Converts the settings to fields of a Responses request.
///
/// # Errors
/// `INVALID_ARGUMENT` for settings that this API does not have.
pub(super) fn into_responses(mut settings: Settings, body: &mut JsonObject) -> Result<()> {
    settings.take("parseThinkTags");
    settings.move_to(body, &COMMON);
    settings.move_to(body, &[("maxOutputTokens", "max_output_tokens")]);
    let effort = settings.take("reasoningEffort");
    let summary = settings.take("reasoningSummary");
    let mut reasoning = JsonObject::new();
    reasoning.extend(effort.map(|effort| ("effort".to_owned(), effort)));
    reasoning.extend(summary.map(|summary| ("summary".to_owned(), summary)));
    reasoning.extend(object(settings.take("reasoning"), "reasoning")?);
    if !reasoning.is_empty() {
        // Callers that request reasoning expect to see some of it.
        reasoning.entry("summary").or_insert_with(|| json!("auto"));
        body.insert("reasoning".to_owned(), reasoning.into());
    }
    let verbosity = settings.take("verbosity");
    let mut text = object(body.shift_remove("text"), "text")?;
    text.extend(verbosity.map(|verbosity| ("verbosity".to_owned(), verbosity)));
    text.extend(object(settings.take("text"), "text")?);
    if !text.is_empty() {
        body.insert("text".to_owned(), text.into());
    }
    if let Some(Value::Array(wanted)) = settings.take("include") {
        let include = body.entry("include").or_insert_with(|| json!([]));
        if let Value::Array(include) = include {
            let more: Vec<Value> = wanted
                .into_iter()
                .filter(|entry| !include.contains(entry))
                .collect();
            include.extend(more);
        }
    }
    settings.move_rest_to(body);
    Ok(())
}

/// Converts the settings to fields of a Chat Completions request.
pub(super) fn into_chat(mut settings: Settings, dialect: Dialect, body: &mut JsonObject) {
    let limit = if dialect.is_openai() {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    settings.take("reasoningSummary");
    settings.move_to(body, &COMMON);
    settings.move_to(
        body,
        &[
            ("maxOutputTokens", limit),
            ("topK", "top_k"),
            ("stopSequences", "stop"),
            ("reasoningEffort", "reasoning_effort"),
            ("frequencyPenalty", "frequency_penalty"),
            ("presencePenalty", "presence_penalty"),
            ("logProbs", "logprobs"),
        ],
    );
    settings.move_rest_to(body);
}

fn object(value: Option<Value>, name: &str) -> Result<JsonObject> {
    match value {
        None => Ok(JsonObject::new()),
        Some(Value::Object(object)) => Ok(object),
        Some(_) => Err(Error::invalid_argument(format!(
            "'{name}' in the model's configuration must be an object"
        ))
        .with_public()),
    }
}
