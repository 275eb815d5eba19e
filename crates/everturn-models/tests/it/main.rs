//! Providers against servers of the tests' own, which play every feature and inject what goes wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::needless_pass_by_value, reason = "JSON literals are given away")]

mod anthropic_requests;
mod anthropic_round_trip;
mod anthropic_rules;
mod anthropic_server;
mod anthropic_streams;
mod asking;
mod chat;
mod chat_round_trip;
mod chat_rules;
mod chat_server;
mod gemini_embeddings;
mod gemini_requests;
mod gemini_round_trip;
mod gemini_rules;
mod gemini_server;
mod gemini_streams;
mod listed_models;
mod model_switching;
mod ollama;
mod patience;
mod provider_faults;
mod random_histories;
mod real_model;
mod responses;
mod responses_server;
mod round_trip;
mod server;
mod signatures_survive_stores;
mod stream_splits;
mod strict_servers;
