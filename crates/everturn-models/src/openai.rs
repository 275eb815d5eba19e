//! OpenAI, and every server with one of its two protocols.
//!
//! ```
//! use everturn_models::openai::{Api, OpenAi, OpenAiConfig};
//!
//! let openai = OpenAi::new("sk-...");
//! let groq = OpenAi::compatible("groq", "https://api.groq.com/openai/v1").key("gsk-...");
//! let local = OpenAi::compatible("llama", "http://127.0.0.1:8080").api(Api::Chat);
//! let config = OpenAiConfig {
//!     reasoning_effort: Some("low".to_owned()),
//!     ..OpenAiConfig::default()
//! };
//! ```
//!
//! OpenAI's own models use the Responses API, with the whole conversation in each request and nothing stored
//! at the provider (`store: false`); reasoning items are encrypted and sent back unchanged. Any other address
//! uses Chat Completions, parsed leniently, because many servers are almost compatible. [`OpenAi::api`] and
//! the variable `OPENAI_API` override the choice.

mod chat;
mod dialect;
mod media;
mod openai_config;
mod openai_model;
mod responses;
mod token_counts;
mod tools;

use std::sync::Arc;

use everturn_ai::Document;
use everturn_core::{ActionType, Error, Result, Status};
use serde::Deserialize;
use serde_json::{Value, json};

use self::dialect::{Dialect, Kind};
pub use self::openai_config::OpenAiConfig;
use self::openai_model::OpenAiModel;
use crate::embedder;
use crate::{
    ApiKey, Call, EmbedCall, Entry, Environment, Failure, KeyHeader, Listing, Service, provider_plugin,
};

const PROVIDER: &str = "openai";
const BASE_URL: &str = "https://api.openai.com/v1";
const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// The Responses API. It keeps reasoning between requests, and supports the provider's own tools.
    Responses,
    /// Chat Completions, which nearly every server supports.
    Chat,
}

/// The models of OpenAI, or of a compatible server, under the name of the plugin: `openai/NAME`.
#[derive(Debug, Clone)]
pub struct OpenAi {
    service: Service,
    api: Option<Api>,
    enforces_schemas: Option<bool>,
    listing: Arc<Listing<Listed>>,
}

impl OpenAi {
    /// The default model for new programs.
    pub const DEFAULT_MODEL: &'static str = "gpt-5-mini";

    /// Creates the plugin `openai` with an API key.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self::at(PROVIDER, BASE_URL).key(key)
    }

    /// Creates a plugin for a compatible server, whose models are named `name/MODEL`. A server on this
    /// machine needs no key; [`OpenAi::key`] sets one for others.
    ///
    /// ```
    /// use everturn_models::OpenAi;
    ///
    /// let router = OpenAi::compatible("openrouter", "https://openrouter.ai/api/v1").key("sk-or-...");
    /// ```
    pub fn compatible(name: &str, base_url: &str) -> Self {
        Self::at(name, &normalised(base_url))
    }

    /// Creates the plugin with the key in `OPENAI_API_KEY`.
    ///
    /// | variable | sets |
    /// |---|---|
    /// | `OPENAI_BASE_URL` | the address, with or without `/v1` |
    /// | `OPENAI_API` | the protocol: `responses` or `chat` |
    /// | `OPENAI_ORG_ID`, `OPENAI_PROJECT_ID` | the organisation and the project |
    /// | `OPENAI_CUSTOM_HEADERS` | further headers, one `Name: value` per line |
    ///
    /// An application without the key fails to build, unless the address is on this machine.
    pub fn from_env() -> Self {
        Self::from_environment(&Environment::PROCESS)
    }

    fn from_environment(environment: &Environment<'_>) -> Self {
        let mut plugin = Self::at(PROVIDER, BASE_URL);
        if let Some(base_url) = environment.get("OPENAI_BASE_URL") {
            plugin = plugin.base_url(base_url);
        }
        let key = environment.get(KEY_VARIABLE);
        plugin.service = plugin.service.with_key_from(key.as_deref(), KEY_VARIABLE);
        for (variable, header) in [
            ("OPENAI_ORG_ID", "OpenAI-Organization"),
            ("OPENAI_PROJECT_ID", "OpenAI-Project"),
        ] {
            if let Some(value) = environment.get(variable) {
                plugin = plugin.header(header, value);
            }
        }
        for (name, value) in environment.headers("OPENAI_CUSTOM_HEADERS") {
            plugin = plugin.header(name, value);
        }
        match environment.get("OPENAI_API").as_deref() {
            None => plugin,
            Some("responses") => plugin.api(Api::Responses),
            Some("chat") => plugin.api(Api::Chat),
            Some(other) => {
                let problem = format!("OPENAI_API is '{other}': it must be 'responses' or 'chat'");
                plugin.service = plugin.service.with_problem(Error::invalid_argument(problem));
                plugin
            }
        }
    }

    fn at(name: &str, base_url: &str) -> Self {
        Self {
            service: Service::new(name, base_url).with_classify(classify),
            api: None,
            enforces_schemas: None,
            listing: Arc::new(Listing::new()),
        }
    }

    /// Sets the API key.
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        self.service = self.service.with_key(Some(ApiKey::new(key.as_ref())));
        self
    }

    /// Takes the API key from a variable of the environment. An application without it fails to build, unless
    /// the address is on this machine.
    ///
    /// ```
    /// use everturn_models::OpenAi;
    ///
    /// let groq = OpenAi::compatible("groq", "https://api.groq.com/openai/v1").key_from_env("GROQ_API_KEY");
    /// ```
    pub fn key_from_env(mut self, variable: &'static str) -> Self {
        let key = Environment::PROCESS.get(variable);
        self.service = self.service.with_key_from(key.as_deref(), variable);
        self
    }

    /// Sets the protocol. The default is Responses for OpenAI and Azure, Chat Completions elsewhere.
    pub fn api(mut self, api: Api) -> Self {
        self.api = Some(api);
        self
    }

    /// Sets whether the server enforces output schemas, as vLLM, llama.cpp and LM Studio do. Otherwise the
    /// schema is described in the prompt; this is the default for Chat Completions on unknown servers.
    pub fn enforces_schemas(mut self, enforces_schemas: bool) -> Self {
        self.enforces_schemas = Some(enforces_schemas);
        self
    }

    fn dialect(&self) -> Dialect {
        Dialect::of(self.service.base_url())
    }

    fn model(&self, id: &str) -> OpenAiModel {
        let dialect = self.dialect();
        let api = self.api.unwrap_or_else(|| dialect.api());
        OpenAiModel::new(self.service_for(dialect), id, api, dialect).enforcing_schemas(self.enforces_schemas)
    }

    fn service_for(&self, dialect: Dialect) -> Service {
        let service = self.service.clone();
        match dialect {
            Dialect::Azure => service.with_key_header(KeyHeader::Named("api-key")),
            _ => service,
        }
    }

    async fn fetch(&self) -> Result<Vec<Listed>> {
        let answer: Value = self.service.json(&Call::get("/models")).await?;
        // Some servers respond with a bare list.
        let entries = answer.get("data").unwrap_or(&answer).as_array();
        let listed = |entry: &Value| {
            let id = entry.get("id")?.as_str()?.to_owned();
            let kind = Kind::of(&id);
            Some(Listed { id, kind })
        };
        Ok(entries.into_iter().flatten().filter_map(listed).collect())
    }
}

provider_plugin!(
    OpenAi,
    base_url: normalised,
    embedder: |plugin, id| embedder::action(&plugin.service_for(plugin.dialect()), id, embed)
);

/// The address with its version: `https://host` means `https://host/v1`.
fn normalised(base_url: &str) -> String {
    let trimmed = base_url.trim().trim_end_matches('/');
    let host = trimmed.split_once("://").map_or(trimmed, |(_, rest)| rest);
    if host.contains('/') {
        trimmed.to_owned()
    } else {
        format!("{trimmed}/v1")
    }
}

/// Classifies the error codes of OpenAI and compatible servers where the HTTP status is ambiguous.
fn classify(failure: &mut Failure, body: &Value) {
    let code = failure.code.clone().unwrap_or_default();
    match code.as_str() {
        // Groq: the model wrote an invalid call; a retry may succeed.
        "tool_use_failed" => {
            failure.status = Status::Unavailable;
            failure.is_retryable = true;
        }
        _ if failure.http_status.is_some() => {}
        "server_error" => failure.status = Status::Internal,
        "rate_limit_exceeded" | "rate_limit_error" | "insufficient_quota" => {
            failure.status = Status::ResourceExhausted;
        }
        "invalid_api_key" => {
            failure.status = Status::Unauthenticated;
            failure.is_retryable = false;
        }
        _ if code.contains("image") || code.contains("prompt") || code.starts_with("invalid_") => {
            failure.status = Status::InvalidArgument;
            failure.is_retryable = false;
        }
        _ => {}
    }
    if failure.http_status == Some(404) && body.pointer("/error/code").is_none_or(Value::is_null) {
        failure.message.push_str(" (is the base URL right, and does the server speak this protocol? `OPENAI_API` or `.api(…)` chooses it)");
    }
}

/// A model that a server lists.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    id: String,
    kind: Kind,
}

impl Entry for Listed {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> Option<ActionType> {
        self.kind.action_type()
    }
}

/// The most texts of a request.
const MAX_INPUTS: usize = 2048;

#[derive(Deserialize)]
struct Answer {
    data: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    #[serde(default)]
    index: usize,
    embedding: Vec<f32>,
}

pub(super) async fn embed(call: EmbedCall) -> Result<Vec<Vec<f32>>> {
    let mut vectors = Vec::with_capacity(call.documents.len());
    for documents in call.documents.chunks(MAX_INPUTS) {
        let texts: Vec<_> = documents.iter().map(Document::text).collect();
        // Many servers support no other encoding.
        let body = json!({ "model": call.model, "input": texts, "encoding_format": "float" });
        let mut answer: Answer = call.post("/embeddings", call.with_options(body)).await?;
        answer.data.sort_by_key(|vector| vector.index);
        vectors.extend(answer.data.into_iter().map(|vector| vector.embedding));
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use everturn_core::Plugin as _;

    fn from(variables: &[(&str, &str)]) -> OpenAi {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        };
        OpenAi::from_environment(&Environment::of(&lookup))
    }

    #[test]
    fn a_missing_key_is_named_unless_the_server_is_on_this_machine() {
        let error = from(&[("OPENAI_API_KEY", " ")]).check().unwrap_err();

        assert!(error.message().contains("OPENAI_API_KEY"), "{error}");
        assert!(from(&[("OPENAI_API_KEY", "sk-1")]).check().is_ok());
        assert!(
            from(&[("OPENAI_BASE_URL", "http://127.0.0.1:8080")])
                .check()
                .is_ok()
        );
        assert!(
            from(&[("OPENAI_API_KEY", "k"), ("OPENAI_API", "soap")])
                .check()
                .is_err()
        );
    }

    #[test]
    fn the_key_of_a_compatible_server_may_be_in_a_variable() {
        let plugin = |url: &str| OpenAi::compatible("groq", url).key_from_env("EVERTURN_NO_SUCH_KEY");

        let error = plugin("https://api.groq.com/openai/v1").check().unwrap_err();
        assert!(error.message().contains("EVERTURN_NO_SUCH_KEY"), "{error}");
        assert!(plugin("http://localhost:1").check().is_ok());
    }

    #[test]
    fn the_protocol_follows_the_address_unless_it_is_chosen() {
        let api = |variables: &[(&str, &str)]| from(variables).model("m").api();

        assert_eq!(api(&[]), Api::Responses);
        assert_eq!(api(&[("OPENAI_BASE_URL", "http://localhost:1234/v1")]), Api::Chat);
        assert_eq!(
            api(&[
                ("OPENAI_BASE_URL", "http://localhost:1234"),
                ("OPENAI_API", "responses")
            ]),
            Api::Responses
        );
        assert_eq!(api(&[("OPENAI_API", "chat")]), Api::Chat);
    }

    #[test]
    fn an_address_may_leave_out_its_version_and_its_slash() {
        assert_eq!(normalised("https://api.openai.com/"), BASE_URL);
        assert_eq!(normalised("https://api.openai.com/v1/"), BASE_URL);
        assert_eq!(
            normalised("https://api.groq.com/openai/v1"),
            "https://api.groq.com/openai/v1"
        );
    }

    #[test]
    fn nothing_prints_the_key() {
        let plugin = OpenAi::new("sk-secret").header("x-gateway", "sk-other");

        let printed = format!("{plugin:?}");
        assert!(
            !printed.contains("sk-secret") && !printed.contains("sk-other"),
            "{printed}"
        );
    }
}
