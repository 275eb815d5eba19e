//! Models on this machine, through Ollama's own API.
//!
//! ```
//! use everturn_models::ollama::{Ollama, OllamaConfig};
//!
//! let plugin = Ollama::from_env();
//! let config = OllamaConfig {
//!     num_ctx: Some(16_384),
//!     think: Some("low".into()),
//!     ..OllamaConfig::default()
//! };
//! ```
//!
//! Only this API can set the context window (`num_ctx`, often 4,096 tokens by default), how long the model
//! stays loaded (`keep_alive`) and whether it thinks (`think`).

mod line_stream;
mod ollama_messages;
mod ollama_model;

use std::sync::Arc;

use everturn_ai::Document;
use everturn_core::{ActionType, Result, Status};
use serde::Deserialize;
use serde_json::{Value, json};

pub use self::ollama_model::OllamaConfig;
use self::ollama_model::OllamaModel;
use crate::embedder;
use crate::{ApiKey, Call, EmbedCall, Entry, Environment, Failure, Listing, Service, provider_plugin};

const PROVIDER: &str = "ollama";
const PORT: u16 = 11434;
const BASE_URL: &str = "http://127.0.0.1:11434";

/// A model that the server has.
#[derive(Debug, Clone)]
struct Installed {
    name: String,
    is_embedder: bool,
}

impl Entry for Installed {
    fn id(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Option<ActionType> {
        Some(if self.is_embedder {
            ActionType::EMBEDDER
        } else {
            ActionType::MODEL
        })
    }
}

/// The models of an Ollama server, as `ollama/NAME`.
#[derive(Debug, Clone)]
pub struct Ollama {
    service: Service,
    listing: Arc<Listing<Installed>>,
}

impl Ollama {
    /// Creates the plugin for the server on this machine, at its default port.
    pub fn new() -> Self {
        let service = Service::new(PROVIDER, BASE_URL).with_classify(classify);
        Self {
            service,
            listing: Arc::new(Listing::new()),
        }
    }

    /// Creates the plugin for the server in `OLLAMA_HOST`, or else for the one on this machine.
    /// `OLLAMA_API_KEY` is the key for servers that require one, such as ollama.com.
    pub fn from_env() -> Self {
        Self::from_environment(&Environment::PROCESS)
    }

    fn from_environment(environment: &Environment<'_>) -> Self {
        let mut plugin = Self::new();
        if let Some(host) = environment.get("OLLAMA_HOST") {
            plugin = plugin.base_url(host);
        }
        match environment.get("OLLAMA_API_KEY") {
            Some(key) => plugin.key(key),
            None => plugin,
        }
    }

    /// Sets the API key.
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        self.service = self.service.with_key(Some(ApiKey::new(key.as_ref())));
        self
    }

    fn model(&self, id: &str) -> OllamaModel {
        OllamaModel::new(self.service.clone(), id)
    }

    async fn fetch(&self) -> Result<Vec<Installed>> {
        let answer: Value = self.service.json(&Call::get("/api/tags")).await?;
        let entries = answer["models"].as_array().into_iter().flatten();
        let names = entries.filter_map(|entry| entry["name"].as_str().or_else(|| entry["model"].as_str()));
        let mut installed = Vec::new();
        for name in names {
            installed.push(Installed {
                is_embedder: self.is_embedder(name).await,
                name: name.to_owned(),
            });
        }
        Ok(installed)
    }

    /// Uses the server's description of a model; older servers have none, and then the name decides.
    async fn is_embedder(&self, name: &str) -> bool {
        let call = Call::post("/api/show", json!({ "model": name }));
        let shown: Value = self.service.json(&call).await.unwrap_or_default();
        match shown["capabilities"].as_array() {
            Some(abilities) => !abilities.iter().any(|ability| ability == "completion"),
            None => name.contains("embed"),
        }
    }
}

impl Default for Ollama {
    fn default() -> Self {
        Self::new()
    }
}

provider_plugin!(
    Ollama,
    base_url: normalised,
    embedder: |plugin, id| embedder::action(&plugin.service, id, embed)
);

/// Normalises an address from `OLLAMA_HOST`: a host, a port, both, or a URL.
fn normalised(host: &str) -> String {
    let trimmed = host.trim().trim_end_matches('/');
    let (scheme, rest) = trimmed.split_once("://").unwrap_or(("", trimmed));
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (name, port.to_owned())
        }
        _ => {
            let usual = match scheme {
                "http" => 80,
                "https" => 443,
                _ => PORT,
            };
            (authority.trim_end_matches(':'), usual.to_string())
        }
    };
    let name = match name {
        // A server that listens on every interface is reached on the loopback one.
        "" | "0.0.0.0" | "[::]" => "127.0.0.1",
        name => name,
    };
    let scheme = if scheme.is_empty() { "http" } else { scheme };
    format!("{scheme}://{name}:{port}{path}")
}

/// A failure is only a text, so a missing model is recognised by it.
fn classify(failure: &mut Failure, body: &Value) {
    let is_missing = failure.message.contains("not found");
    if failure.http_status.is_none() && body["error"].is_string() && is_missing {
        failure.status = Status::NotFound;
        failure.is_retryable = false;
    }
    if failure.status == Status::NotFound && is_missing && failure.message.contains("model") {
        failure.message.push_str("; `ollama pull` fetches models");
    }
}

#[derive(Deserialize)]
struct Answer {
    embeddings: Vec<Vec<f32>>,
}

pub(super) async fn embed(call: EmbedCall) -> Result<Vec<Vec<f32>>> {
    let texts: Vec<_> = call.documents.iter().map(Document::text).collect();
    let body = call.with_options(json!({ "model": call.model, "input": texts }));
    let answer: Answer = call.post("/api/embed", body).await?;
    Ok(answer.embeddings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_host_is_an_address() {
        let forms = [
            ("box", "http://box:11434"),
            ("box:1", "http://box:1"),
            (":1", "http://127.0.0.1:1"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("http://box", "http://box:80"),
            ("https://box/path/", "https://box:443/path"),
            ("[::1]:1", "http://[::1]:1"),
        ];
        for (host, address) in forms {
            assert_eq!(normalised(host), address);
        }
    }
}
