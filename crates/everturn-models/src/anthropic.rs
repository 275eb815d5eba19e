//! Claude, through Anthropic's Messages API.
//!
//! ```
//! use everturn_models::anthropic::{Anthropic, AnthropicConfig, Thinking};
//!
//! let plugin = Anthropic::new("sk-ant-...");
//! let config = AnthropicConfig {
//!     thinking: Some(Thinking::adaptive()),
//!     ..AnthropicConfig::default()
//! };
//! ```
//!
//! Thinking is kept with its signature, in order, and sent back unchanged; so are redacted thinking and the
//! blocks of server tools, as custom parts. A part whose metadata has `cache_control` (see
//! [`CacheControl::mark`]) ends a stretch of the prompt cache. An answer that pauses in the middle of server
//! tools is sent back and continued, up to five times.

mod anthropic_config;
mod blocks;
mod claude;
mod claude_family;
mod conversation;
mod message_stream;
mod messages_request;

use std::sync::Arc;

use everturn_ai::{ConstrainedSupport, ModelInfo, ModelStage, ModelSupports};
use everturn_core::{ActionType, Result, Status};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

pub use self::anthropic_config::{AnthropicConfig, CacheControl, Effort, Thinking, ThinkingDisplay};
use self::claude::Claude;
use crate::{
    ApiKey, Call, Entry, Environment, Failure, KeyHeader, Listing, Service, provider_plugin, without_version,
};

/// The name of the plugin, and of the provider in the metadata of parts.
const PROVIDER: &str = "anthropic";
const BASE_URL: &str = "https://api.anthropic.com";
const KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";
const TOKEN_VARIABLE: &str = "ANTHROPIC_AUTH_TOKEN";
const KEY_HEADER: KeyHeader = KeyHeader::Named("x-api-key");

/// The plugin for Claude and other models with Anthropic's protocol. Its models are `anthropic/NAME`.
#[derive(Debug, Clone)]
pub struct Anthropic {
    service: Service,
    listing: Arc<Listing<Listed>>,
}

impl Anthropic {
    /// The default model for new programs.
    pub const DEFAULT_MODEL: &'static str = "claude-sonnet-4-5";

    /// Creates the plugin with an API key.
    pub fn new(key: impl AsRef<str>) -> Self {
        let service = Service::new(PROVIDER, BASE_URL)
            .with_key_header(KEY_HEADER)
            .with_key(Some(ApiKey::new(key.as_ref())));
        Self::of(service)
    }

    /// Creates the plugin with the key in `ANTHROPIC_API_KEY`, or the token in `ANTHROPIC_AUTH_TOKEN`, for
    /// the address in `ANTHROPIC_BASE_URL` if that is set. The lines of `ANTHROPIC_CUSTOM_HEADERS` (`Name:
    /// value`) become headers of every request.
    ///
    /// Without a key, installing the plugin fails with an error that names the variable, unless the address
    /// is on this machine.
    pub fn from_env() -> Self {
        Self::from_variables(&Environment::PROCESS)
    }

    fn from_variables(environment: &Environment<'_>) -> Self {
        let key = environment.get(KEY_VARIABLE);
        let token = environment.get(TOKEN_VARIABLE);
        if key.is_some() && token.is_some() {
            tracing::warn!("{KEY_VARIABLE} and {TOKEN_VARIABLE} are both set; the key is used");
        }
        let service = Service::new(PROVIDER, BASE_URL);
        let service = match (key, token) {
            (None, Some(token)) => service.with_key(Some(ApiKey::new(&token))),
            (key, _) => service
                .with_key_header(KEY_HEADER)
                .with_key_from(key.as_deref(), KEY_VARIABLE),
        };
        let mut plugin = Self::of(service);
        if let Some(base_url) = environment.get("ANTHROPIC_BASE_URL") {
            plugin = plugin.base_url(base_url);
        }
        for (name, value) in environment.headers("ANTHROPIC_CUSTOM_HEADERS") {
            plugin = plugin.header(name, value);
        }
        plugin
    }

    fn of(service: Service) -> Self {
        Self {
            service: service.with_classify(classify),
            listing: Arc::new(Listing::new()),
        }
    }

    /// Returns the model of that name, with the provider's description if its list was fetched recently.
    fn model(&self, name: &str) -> Claude {
        let listed = self.listing.find(name);
        Claude::new(self.service.clone(), name, listed.as_ref())
    }

    async fn fetch(&self) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        let mut path = "/v1/models?limit=1000".to_owned();
        for _ in 0..MAX_PAGES {
            let mut call = Call::get(path);
            call.headers = HeaderMap::from_iter([(
                HeaderName::from_static("anthropic-version"),
                HeaderValue::from_static(messages_request::VERSION),
            )]);
            let page: Page = self.service.json(&call).await?;
            listed.extend(page.data);
            match page.last_id.filter(|_| page.has_more) {
                Some(last) => path = format!("/v1/models?limit=1000&after_id={last}"),
                None => break,
            }
        }
        Ok(listed)
    }
}

provider_plugin!(Anthropic, base_url: |url| without_version(url, "/v1"));

/// Classifies an error inside a stream by its type: there is no HTTP status.
fn classify(failure: &mut Failure, body: &Value) {
    if failure.http_status.is_some() {
        return;
    }
    let kind = body.pointer("/error/type").and_then(Value::as_str);
    (failure.status, failure.is_retryable) = match kind.unwrap_or_default() {
        "invalid_request_error" | "request_too_large" => (Status::InvalidArgument, false),
        "authentication_error" => (Status::Unauthenticated, false),
        "billing_error" => (Status::FailedPrecondition, false),
        "permission_error" => (Status::PermissionDenied, false),
        "not_found_error" => (Status::NotFound, false),
        "rate_limit_error" => (Status::ResourceExhausted, true),
        "timeout_error" => (Status::DeadlineExceeded, true),
        "overloaded_error" => (Status::Unavailable, true),
        "conflict_error" => (Status::Aborted, true),
        _ => return,
    };
}

/// The most pages of a list that are read; a page has up to a thousand models.
const MAX_PAGES: usize = 10;

/// A model in the provider's list.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Listed {
    id: String,
    display_name: Option<String>,
    max_input_tokens: Option<u64>,
    #[serde(default)]
    lifecycle: Value,
    #[serde(default)]
    capabilities: Value,
}

#[derive(Debug, Deserialize)]
struct Page {
    data: Vec<Listed>,
    #[serde(default)]
    has_more: bool,
    last_id: Option<String>,
}

impl Entry for Listed {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> Option<ActionType> {
        Some(ActionType::MODEL)
    }
}

impl Listed {
    /// Updates the description of a model from the provider's list.
    pub(super) fn refine(&self, info: ModelInfo) -> ModelInfo {
        let supports = info.supports.unwrap_or_default();
        let media = match (self.has("image_input"), self.has("pdf_input")) {
            (None, None) => supports.media,
            (image, pdf) => Some(image == Some(true) || pdf == Some(true)),
        };
        let constrained = match self.has("structured_outputs") {
            None => supports.constrained,
            Some(true) => Some(ConstrainedSupport::All),
            Some(false) => Some(ConstrainedSupport::None),
        };
        ModelInfo {
            label: self.display_name.clone().or(info.label),
            supports: Some(ModelSupports {
                media,
                constrained,
                ..supports
            }),
            stage: self.stage().or(info.stage),
            max_input_tokens: self.max_input_tokens.or(info.max_input_tokens),
            ..info
        }
    }

    /// Returns whether the model has a capability; `None` if the provider does not declare it.
    fn has(&self, capability: &str) -> Option<bool> {
        match self.capabilities.get(capability)? {
            Value::Bool(has) => Some(*has),
            Value::Object(details) => details.get("supported").and_then(Value::as_bool),
            _ => None,
        }
    }

    fn stage(&self) -> Option<ModelStage> {
        let stage = match &self.lifecycle {
            Value::String(stage) => stage.as_str(),
            Value::Object(details) => ["stage", "status", "state"]
                .iter()
                .find_map(|key| details.get(*key)?.as_str())?,
            _ => return None,
        };
        match stage {
            "active" | "stable" => Some(ModelStage::Stable),
            "legacy" => Some(ModelStage::Legacy),
            "deprecated" | "retired" => Some(ModelStage::Deprecated),
            "preview" | "beta" => Some(ModelStage::Unstable),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everturn_core::Plugin as _;

    fn from(variables: &[(&str, &str)]) -> Anthropic {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Anthropic::from_variables(&Environment::of(&lookup))
    }

    #[test]
    fn a_missing_key_is_named_unless_the_server_is_local() {
        let error = from(&[("ANTHROPIC_API_KEY", " ")]).check().unwrap_err();

        assert!(error.message().contains("ANTHROPIC_API_KEY"), "{error}");
        assert!(
            from(&[("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")])
                .check()
                .is_ok()
        );
        assert!(from(&[("ANTHROPIC_AUTH_TOKEN", "t")]).check().is_ok());
    }

    #[test]
    fn an_address_may_end_with_the_version() {
        for address in [
            "http://a.test",
            "http://a.test/",
            "http://a.test/v1",
            "http://a.test/v1/",
        ] {
            let plugin = from(&[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", address)]);

            assert_eq!(plugin.service.base_url(), "http://a.test");
        }
    }

    #[test]
    fn the_key_is_not_printed() {
        let printed = format!(
            "{:?}",
            Anthropic::new("sk-secret").header("x-gateway", "sk-secret")
        );

        assert!(!printed.contains("sk-secret"), "{printed}");
    }
}
