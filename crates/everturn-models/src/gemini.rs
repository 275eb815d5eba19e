//! Gemini, through Google's `generateContent`.
//!
//! ```
//! use everturn_models::gemini::{Gemini, GeminiConfig};
//!
//! let plugin = Gemini::new("AIza...");
//! let config = GeminiConfig {
//!     google_search: Some(true),
//!     ..GeminiConfig::default()
//! };
//! ```
//!
//! The signature of a thought is kept on its part and sent back with it. A call that another provider's model
//! made is marked as such, so that a conversation can change to Gemini in the middle of its tools. Code that
//! Gemini ran and tools that it called itself are custom parts; citations and grounding are in the metadata
//! of the message.

mod content_request;
mod content_stream;
mod contents;
mod gemini_config;
mod gemini_family;
mod gemini_model;
mod open_api;
mod partial_args;

use std::sync::Arc;
use std::time::Duration;

use everturn_ai::{Document, Part};
use everturn_core::{ActionType, Result, Status};
use serde::Deserialize;
use serde_json::{Value, json};

pub use self::gemini_config::{GeminiConfig, SafetySetting, ThinkingConfig, ThinkingLevel};
use self::gemini_model::GeminiModel;
use crate::embedder;
use crate::{
    ApiKey, Call, EmbedCall, Entry, Environment, Failure, KeyHeader, Listing, Service, provider_plugin,
    without_version,
};

/// The name of the plugin, and of the provider in the metadata of parts.
const PROVIDER: &str = "gemini";
const BASE_URL: &str = "https://generativelanguage.googleapis.com";
/// The variables that may hold the key. The first one that is set counts.
const KEY_VARIABLES: [&str; 3] = ["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_API_KEY"];
/// A header: a key in the address would end up in logs.
const KEY_HEADER: KeyHeader = KeyHeader::Named("x-goog-api-key");

/// The plugin for Gemini. Its models and embedders are `gemini/NAME`.
#[derive(Debug, Clone)]
pub struct Gemini {
    service: Service,
    listing: Arc<Listing<Listed>>,
}

impl Gemini {
    /// The default model for new programs.
    pub const DEFAULT_MODEL: &'static str = "gemini-2.5-flash";

    /// Creates the plugin with an API key.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self::of(Service::new(PROVIDER, BASE_URL).with_key(Some(ApiKey::new(key.as_ref()))))
    }

    /// Creates the plugin with the key in `GEMINI_API_KEY`, `GOOGLE_API_KEY` or `GOOGLE_GENAI_API_KEY`, for
    /// the address in `GOOGLE_GEMINI_BASE_URL` if that is set.
    ///
    /// Without a key, installing the plugin fails with an error that names the variable, unless the address
    /// is on this machine.
    pub fn from_env() -> Self {
        Self::from_variables(&Environment::PROCESS)
    }

    fn from_variables(environment: &Environment<'_>) -> Self {
        let mut keys = KEY_VARIABLES
            .iter()
            .filter_map(|variable| environment.get(variable));
        let key = keys.next();
        if keys.any(|other| Some(other) != key) {
            let variables = KEY_VARIABLES.join(", ");
            tracing::warn!("more than one of {variables} is set, and they differ; the first is used");
        }
        let service = Service::new(PROVIDER, BASE_URL).with_key_from(key.as_deref(), KEY_VARIABLES[0]);
        let plugin = Self::of(service);
        match environment.get("GOOGLE_GEMINI_BASE_URL") {
            Some(base_url) => plugin.base_url(base_url),
            None => plugin,
        }
    }

    fn of(service: Service) -> Self {
        Self {
            service: service.with_key_header(KEY_HEADER).with_classify(classify),
            listing: Arc::new(Listing::new()),
        }
    }

    /// Returns the model of that name, with the provider's description if its list was fetched recently.
    fn model(&self, name: &str) -> GeminiModel {
        let listed = self.listing.find(name);
        GeminiModel::new(self.service.clone(), name, listed.as_ref())
    }

    async fn fetch(&self) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        let mut path = "/v1beta/models?pageSize=1000".to_owned();
        for _ in 0..MAX_PAGES {
            let page: Page = self.service.json(&Call::get(path)).await?;
            listed.extend(page.models);
            match page.next_page_token.filter(|token| !token.is_empty()) {
                Some(token) => path = format!("/v1beta/models?pageSize=1000&pageToken={token}"),
                None => break,
            }
        }
        Ok(listed)
    }
}

provider_plugin!(
    Gemini,
    base_url: |url| without_version(url, "/v1beta"),
    embedder: |plugin, id| embedder::action(&plugin.service, id, embed)
);

/// Returns the path of a method of a model, `tunedModels/…` included.
fn method_path(model: &str, method: &str) -> String {
    let mut path = "/v1beta/".to_owned();
    if !model.contains('/') {
        path.push_str("models/");
    }
    for byte in model.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/@".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let digits = format!("%{byte:02X}");
            path.push_str(&digits);
        }
    }
    format!("{path}:{method}")
}

/// Classifies an error by the name of its status. It distinguishes a wrong key from a wrong request, and an
/// exhausted quota from a temporary overload.
fn classify(failure: &mut Failure, body: &Value) {
    // An error outside of an event stream comes in a list.
    let body = body.get(0).unwrap_or(body);
    let error = &body["error"];
    if let Some(message) = error["message"].as_str() {
        message.trim().clone_into(&mut failure.message);
    }
    if let Some(status) = error["status"].as_str() {
        failure.code = Some(status.to_owned());
        if let Some((status, is_retryable)) = named(status) {
            (failure.status, failure.is_retryable) = (status, is_retryable);
        }
    }
    for detail in error["details"].as_array().into_iter().flatten() {
        if detail["reason"] == "API_KEY_INVALID" {
            (failure.status, failure.is_retryable) = (Status::Unauthenticated, false);
        }
        if let Some(delay) = detail["retryDelay"].as_str().and_then(seconds) {
            failure.retry_after.get_or_insert(delay);
        }
        let violations = detail["violations"].as_array().into_iter().flatten();
        if violations
            .into_iter()
            .any(|violation| violation["quotaValue"] == "0")
        {
            failure.is_retryable = false;
        }
    }
}

fn named(status: &str) -> Option<(Status, bool)> {
    Some(match status {
        "INVALID_ARGUMENT" | "OUT_OF_RANGE" => (Status::InvalidArgument, false),
        "FAILED_PRECONDITION" => (Status::FailedPrecondition, false),
        "UNAUTHENTICATED" => (Status::Unauthenticated, false),
        "PERMISSION_DENIED" => (Status::PermissionDenied, false),
        "NOT_FOUND" => (Status::NotFound, false),
        "RESOURCE_EXHAUSTED" => (Status::ResourceExhausted, true),
        "DEADLINE_EXCEEDED" => (Status::DeadlineExceeded, true),
        "CANCELLED" | "ABORTED" => (Status::Aborted, true),
        "UNAVAILABLE" => (Status::Unavailable, true),
        "INTERNAL" | "UNKNOWN" => (Status::Internal, true),
        _ => return None,
    })
}

/// Reads a duration such as `34.07s`.
fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.strip_suffix('s')?.parse().ok()?).ok()
}

/// The most pages of a list that are read; a page has up to a thousand models.
const MAX_PAGES: usize = 10;

/// A model in the provider's list.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    name: String,
    display_name: Option<String>,
    input_token_limit: Option<u64>,
    #[serde(default)]
    supported_generation_methods: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default)]
    models: Vec<Listed>,
    next_page_token: Option<String>,
}

impl Entry for Listed {
    fn id(&self) -> &str {
        self.name.strip_prefix("models/").unwrap_or(&self.name)
    }

    fn kind(&self) -> Option<ActionType> {
        if self.has("generateContent") && gemini_family::is_conversational(self.id()) {
            Some(ActionType::MODEL)
        } else {
            (self.has("embedContent") || self.has("batchEmbedContents")).then_some(ActionType::EMBEDDER)
        }
    }
}

impl Listed {
    /// Returns the display name.
    pub(super) fn label(&self) -> Option<&str> {
        self.display_name.as_deref()
    }

    /// Returns the most tokens of a request.
    pub(super) fn max_input_tokens(&self) -> Option<u64> {
        self.input_token_limit
    }

    fn has(&self, method: &str) -> bool {
        self.supported_generation_methods
            .iter()
            .any(|known| known == method)
    }
}

/// The most documents of a request.
const MAX_DOCUMENTS: usize = 100;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    embeddings: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    #[serde(default)]
    values: Vec<f32>,
}

pub(super) async fn embed(call: EmbedCall) -> Result<Vec<Vec<f32>>> {
    let path = method_path(&call.model, "batchEmbedContents");
    let mut vectors = Vec::with_capacity(call.documents.len());
    for documents in call.documents.chunks(MAX_DOCUMENTS) {
        let requests = documents.iter().map(|document| request(&call, document));
        let requests = requests.collect::<Result<Vec<_>>>()?;
        let answer: Answer = call.post(&path, json!({ "requests": requests })).await?;
        vectors.extend(answer.embeddings.into_iter().map(|vector| vector.values));
    }
    Ok(vectors)
}

fn request(call: &EmbedCall, document: &Document) -> Result<Value> {
    let name = if call.model.contains('/') {
        call.model.clone()
    } else {
        format!("models/{}", call.model)
    };
    let parts = document.content.iter().map(part).collect::<Result<Vec<_>>>()?;
    Ok(call.with_options(json!({ "model": name, "content": { "parts": parts } })))
}

fn part(part: &Part) -> Result<Value> {
    match part.as_media() {
        Some(media) => contents::media_part(media),
        None => Ok(json!({ "text": part.as_text().unwrap_or_default() })),
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Plugin as _;
    use serde_json::json;

    use super::*;

    fn from(variables: &[(&str, &str)]) -> Gemini {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Gemini::from_variables(&Environment::of(&lookup))
    }

    fn classified(body: &Value) -> Failure {
        let mut failure = Failure::new(Status::InvalidArgument, false, "");
        classify(&mut failure, body);
        failure
    }

    #[test]
    fn a_missing_key_is_named_unless_the_server_is_local() {
        let error = from(&[]).check().unwrap_err();

        assert!(error.message().contains("GEMINI_API_KEY"), "{error}");
        assert!(from(&[("GOOGLE_API_KEY", "k")]).check().is_ok());
        assert!(
            from(&[("GOOGLE_GEMINI_BASE_URL", "http://localhost:1/v1beta/")])
                .check()
                .is_ok()
        );
    }

    #[test]
    fn a_model_name_cannot_leave_its_place_in_the_path() {
        assert_eq!(method_path("gemini-3", "x"), "/v1beta/models/gemini-3:x");
        assert_eq!(method_path("tunedModels/a", "x"), "/v1beta/tunedModels/a:x");
        assert_eq!(method_path("a?b#c", "x"), "/v1beta/models/a%3Fb%23c:x");
    }

    #[test]
    fn a_wrong_key_is_not_a_wrong_request() {
        let failure = classified(&json!({ "error": {
            "code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid.",
            "details": [{ "reason": "API_KEY_INVALID" }],
        }}));

        assert_eq!(failure.status, Status::Unauthenticated);
    }

    #[test]
    fn a_quota_of_nothing_is_not_worth_waiting_for() {
        let exhausted = |quota: &str| {
            classified(&json!([{ "error": {
                "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota",
                "details": [
                    { "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{ "quotaValue": quota }] },
                    { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s" },
                ],
            }}]))
        };

        assert!(!exhausted("0").is_retryable);
        assert!(exhausted("10").is_retryable);
        assert_eq!(exhausted("10").retry_after, Some(Duration::from_millis(34_070)));
        assert_eq!(exhausted("10").status, Status::ResourceExhausted);
    }
}
