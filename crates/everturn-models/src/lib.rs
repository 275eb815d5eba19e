//! Model providers: OpenAI and compatible servers, Anthropic, Gemini, Ollama.
//!
//! Each provider is a [plugin](everturn_core::Plugin) that resolves any model name: `openai/gpt-5-mini` needs
//! no entry in a list and no request. Each uses its provider's own protocol. A provider's own data
//! (signatures, encrypted reasoning, ids) is kept in the metadata of the parts and sent back unchanged; it is
//! never sent to another provider.
//!
//! | feature | plugin | key | base URL |
//! |---|---|---|---|
//! | `openai` | `OpenAi` | `OPENAI_API_KEY` | `OPENAI_BASE_URL` |
//! | `anthropic` | `Anthropic` | `ANTHROPIC_API_KEY` | `ANTHROPIC_BASE_URL` |
//! | `gemini` | `Gemini` | `GEMINI_API_KEY`, `GOOGLE_API_KEY` | `GOOGLE_GEMINI_BASE_URL` |
//! | `ollama` | `Ollama` | none | `OLLAMA_HOST` |
//!
//! # How a provider is written
//!
//! A provider is its own folder: the plugin (`gemini.rs`), its request (`content_request.rs`:
//! [`ModelRequest`] to JSON), its stream (`content_stream.rs`: events to chunks and a [`ModelResponse`]), its
//! settings (`gemini_config.rs`). It shares:
//!
//! - `service`: `Service` has the address, key, headers, timeouts, retries and errors of a provider.
//!   `Service::post` returns the `Body` of a response after its first byte, `Service::json` a whole JSON
//!   answer, and `Service::failure` the error in a JSON object, also inside a stream. `provider_plugin!`
//!   implements the plugin and its builder methods.
//! - `event_stream`: `Events` reads the server-sent events of a body. `next` returns an event, `truncated`
//!   the error for a stream that ended before its terminal event. `json_lines` reads one JSON object per
//!   line instead.
//! - `settings`: `Settings` is the configuration of a request. Known names are removed, and the rest is sent
//!   unchanged.
//! - `draft`: `Draft` assembles parts from deltas and sends each as a chunk.
//! - `arguments`: `Arguments` parses a tool call's arguments while they are streamed.
//! - `content`: tool output as text, `data:` URLs, the signature of a part and the provider's own metadata,
//!   warnings that are logged once per cause.
//! - `wire_tools`: `WireTools` converts names and inputs of tools to the providers' form and back.
//! - `environment`: variables, trimmed, without empty ones.
//! - `embedder`: `EmbedCall` is a request to an embedder, with parsed options.
//! - `listing`: `Listing` has the names of models, fetched at most every five minutes.
//!
//! Requests to providers are always streamed, even without a listener. A call is one future: dropping it
//! drops the body and closes the connection.
//!
//! [`ModelRequest`]: everturn_ai::ModelRequest
//! [`ModelResponse`]: everturn_ai::ModelResponse
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]
// Shared code is unused if a provider's feature is disabled.
#![cfg_attr(
    not(all(
        feature = "openai",
        feature = "anthropic",
        feature = "gemini",
        feature = "ollama"
    )),
    allow(dead_code, unused_imports, unused_macros)
)]

#[cfg(feature = "anthropic")]
pub mod anthropic;
mod arguments;
mod content;
mod draft;
mod embedder;
mod environment;
mod event_stream;
#[cfg(feature = "gemini")]
pub mod gemini;
mod listing;
#[cfg(feature = "ollama")]
pub mod ollama;
#[cfg(feature = "openai")]
pub mod openai;
mod service;
mod settings;
mod usage;
mod wire_tools;

#[cfg(feature = "anthropic")]
pub use self::anthropic::{Anthropic, AnthropicConfig};
#[cfg(feature = "gemini")]
pub use self::gemini::{Gemini, GeminiConfig};
#[cfg(feature = "ollama")]
pub use self::ollama::{Ollama, OllamaConfig};
#[cfg(feature = "openai")]
pub use self::openai::{OpenAi, OpenAiConfig};
pub use self::service::ApiKey;

// Shared by the providers.
pub(crate) use self::arguments::{Arguments, Outcome};
pub(crate) use self::content::{
    NO_MESSAGE, SIGNED_BY, Signature, inline, is_image, is_new, output_text, signed, snake_case,
    warn_left_out,
};
pub(crate) use self::draft::Draft;
pub(crate) use self::embedder::EmbedCall;
pub(crate) use self::environment::Environment;
pub(crate) use self::event_stream::Events;
pub(crate) use self::listing::{Entry, Listing};
pub(crate) use self::service::{Call, Failure, KeyHeader, Service, provider_plugin, without_version};
pub(crate) use self::settings::Settings;
pub(crate) use self::usage::sum;
pub(crate) use self::wire_tools::{WireTools, parameters};
