//! The models people use: OpenAI and every server that is compatible with it, Anthropic, Gemini, Ollama.
//!
//! Each provider is a [plugin](everturn_core::Plugin) that resolves any model name: `openai/gpt-5-mini` needs no entry in a
//! list and no request. Each speaks its provider's own protocol. What a provider gives for its own use (signatures,
//! encrypted reasoning, ids) is kept in the metadata of the parts and goes back unchanged; another provider's model
//! never sees it.
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
//! A provider is a folder of its own: the plugin (`openai.rs`), its request (`request.rs`: [`ModelRequest`] to JSON), its
//! stream (`stream.rs`: events to chunks and a [`ModelResponse`]), its settings (`config.rs`). It shares:
//!
//! | module | gives |
//! |---|---|
//! | `service` | `Service`: address, key, headers, timeouts, retries, errors. `Service::post` gives the `Body` of an answer once its first byte is there; `Service::json` a whole JSON answer; `Service::failure` the error in a JSON object, also inside a stream. `connection_methods!` writes the builder methods that all plugins have |
//! | `event_stream` | `Events`: server-sent events of a body. `next` gives an event, `truncated` the error for a stream that ended before its terminal event |
//! | `json_lines` | `JsonLines`: the same for one JSON object per line |
//! | `settings` | `Settings`: the configuration of a request, of which known names are taken and the rest goes to the wire |
//! | `draft` | `Draft`: parts put together from deltas, each sent on as a chunk |
//! | `arguments` | `Arguments`: a tool call's arguments while they are streamed |
//! | `provenance` | who signed a part, and the provider's own metadata |
//! | `content` | tool output as text, `data:` URLs, the warning about parts that are left out |
//! | `wire_tools` | `WireTools`: names and inputs of tools as providers take them, and back |
//! | `environment` | variables, trimmed, with empty ones left out |
//! | `embedder` | `EmbedCall`: a request to an embedder, its options taken apart |
//! | `once` | warnings that are given once for each cause |
//! | `listing` | `Listing`: names of models, fetched at most every five minutes |
//!
//! Upstream everything is streamed, whether or not anybody listens. A call is one future: dropping it drops the body and
//! closes the connection.
//!
//! [`ModelRequest`]: everturn_ai::ModelRequest
//! [`ModelResponse`]: everturn_ai::ModelResponse
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]
// A provider that is switched off leaves some of what all share unused.
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
mod json_lines;
mod listing;
#[cfg(feature = "ollama")]
pub mod ollama;
mod once;
#[cfg(feature = "openai")]
pub mod openai;
mod provenance;
mod service;
mod settings;
mod sse;
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
