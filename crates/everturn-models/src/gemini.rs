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

mod config;
mod contents;
mod embeddings;
mod family;
mod finish;
mod model;
mod models;
mod partial_args;
mod request;
mod schema;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use everturn_ai::{EmbedderAction, model_action};
use everturn_core::{ActionType, Descriptor, DynAction, HandlerResult, Plugin, Result, Status};
use futures::future::BoxFuture;
use serde_json::Value;

pub use self::config::{GeminiConfig, SafetySetting, ThinkingConfig, ThinkingLevel};
use self::model::GeminiModel;
use self::models::Listed;
use crate::embedder;
use crate::environment::Environment;
use crate::listing::Listing;
use crate::service::{ApiKey, Failure, KeyHeader, Service, connection_methods, without_version};

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

    /// Returns the names of the listed models that can chat, without the plugin's prefix. The list is kept
    /// for five minutes.
    ///
    /// # Errors
    /// The provider's error.
    pub async fn chat_models(&self) -> Result<Vec<String>> {
        let listed = self.listing.get(models::fetch(&self.service)).await?;
        let models = listed.iter().filter(|listed| listed.is_model());
        Ok(models.map(|listed| listed.id().to_owned()).collect())
    }

    /// Returns the model of that name, with the provider's description if its list was fetched recently.
    fn model(&self, name: &str) -> GeminiModel {
        let listed = self.listing.find(|listed| listed.id() == name);
        GeminiModel::new(self.service.clone(), name, listed.as_ref())
    }

    fn embedder(&self, name: &str) -> EmbedderAction {
        embedder::action(&self.service, name, embeddings::embed)
    }
}

connection_methods!(Gemini, base_url: |url| without_version(url, "/v1beta"));

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

impl Plugin for Gemini {
    fn name(&self) -> &str {
        PROVIDER
    }

    fn check(&self) -> HandlerResult<()> {
        Ok(self.service.check()?)
    }

    fn resolve<'a>(
        &'a self,
        action_type: &'a ActionType,
        id: &'a str,
    ) -> BoxFuture<'a, HandlerResult<Option<Arc<dyn DynAction>>>> {
        let action: Option<Arc<dyn DynAction>> = if *action_type == ActionType::MODEL {
            Some(Arc::new(model_action(format!("{PROVIDER}/{id}"), self.model(id))))
        } else if *action_type == ActionType::EMBEDDER {
            Some(Arc::new(self.embedder(id)))
        } else {
            None
        };
        Box::pin(std::future::ready(Ok(action)))
    }

    fn list(&self) -> BoxFuture<'_, HandlerResult<Vec<Descriptor>>> {
        Box::pin(async move {
            let fetch = models::fetch(&self.service);
            let listed = self.listing.get_or_empty(PROVIDER, fetch).await;
            let models = listed.iter().filter(|listed| listed.is_model()).map(|listed| {
                let model = GeminiModel::new(self.service.clone(), listed.id(), Some(listed));
                model_action(format!("{PROVIDER}/{}", listed.id()), model)
                    .descriptor()
                    .clone()
            });
            let embedders = listed.iter().filter(|listed| listed.is_embedder());
            let embedders = embedders.map(|listed| self.embedder(listed.id()).descriptor().clone());
            Ok(models.chain(embedders).collect())
        })
    }
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

#[cfg(test)]
mod tests {
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
