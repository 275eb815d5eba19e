//! The content of logs during a provider call.
//!
//! its own program. Whether a call site has a subscriber is decided once for all threads, so a test on
//! another thread without a subscriber could decide it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    dead_code,
    reason = "the support of the other tests offers more than this one needs"
)]
#![allow(clippy::needless_pass_by_value, reason = "JSON literals are given away")]

#[path = "it/asking.rs"]
mod asking;
#[path = "it/server.rs"]
mod server;

use std::sync::Arc;

use everturn_ai::{Message, ModelRequest};
use everturn_models::OpenAi;
use serde_json::json;

use crate::asking::{ask, part, question_with};
use crate::server::{Reply, Server, sse};

#[tokio::test]
async fn retries_and_what_is_left_out_are_logged_and_keys_are_not() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.reopen().unwrap())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let refusal = json!({ "error": { "message": "slow down, sk-secret and sk-called" } });
    let answer =
        json!({ "choices": [{ "index": 0, "delta": { "content": "Leeks." }, "finish_reason": "stop" }] });
    let answer = Reply::events(sse(&[answer]));
    let server = Server::replies([
        Reply::json(&refusal)
            .status(429)
            .header("retry-after-ms", "1")
            .header("x-request-id", "r1"),
        answer.clone(),
        answer.clone(),
        answer,
    ])
    .await;
    let plugin = OpenAi::compatible("p", server.url())
        .key("sk-secret")
        .header("x-gateway", "sk-header");

    ask(
        plugin.clone(),
        "p/m",
        question_with(json!({ "apiKey": "sk-called" })),
    )
    .await
    .result
    .unwrap();
    for _ in 0..2 {
        let foreign = part(json!({ "custom": { "anthropic": { "type": "server_tool_use" } } }));
        let history = [Message::model(foreign), Message::user("And?")];
        let asked = ask(plugin.clone(), "p/m", ModelRequest::new(history)).await;
        asked.result.unwrap();
    }

    assert_eq!(server.requests()[1].headers["authorization"], "Bearer sk-called");
    let logged = std::fs::read_to_string(log.path()).unwrap();
    let retry = logged
        .lines()
        .find(|line| line.contains("asking the provider again"))
        .unwrap_or_default();
    assert!(retry.contains("otel.name=\"p/m\""), "{logged}");
    for word in ["attempt=1", "RESOURCE_EXHAUSTED", "slow down", "request r1"] {
        assert!(retry.contains(word), "{word}: {retry}");
    }
    let left_out: Vec<&str> = logged
        .lines()
        .filter(|line| line.contains("are left out"))
        .collect();
    assert_eq!(left_out.len(), 1, "{logged}");
    assert!(
        left_out[0].contains("WARN") && left_out[0].contains("anthropic"),
        "{logged}"
    );
    for key in ["sk-secret", "sk-called", "sk-header"] {
        assert!(!logged.contains(key), "{key}: {logged}");
    }
}

/// Counts nothing; any listener gives spans their ids.
struct Listening;

impl everturn_core::SpanListener for Listening {
    fn started(&self, _span: &everturn_core::SpanRecord) {}

    fn ended(&self, _span: &Arc<everturn_core::SpanRecord>) {}
}

#[tokio::test]
async fn a_provider_gets_the_span_of_its_call() {
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry());
    let _listening = everturn_core::listen_to_spans(Arc::new(Listening));
    let answer =
        json!({ "choices": [{ "index": 0, "delta": { "content": "Leeks." }, "finish_reason": "stop" }] });
    let server = Server::replies([Reply::events(sse(&[answer]))]).await;
    let plugin = OpenAi::compatible("p", server.url()).key("k");

    let asked = ask(plugin, "p/m", ModelRequest::new([Message::user("And?")])).await;

    asked.result.unwrap();
    let parent = server.requests()[0].headers["traceparent"].clone();
    assert!(everturn_core::TraceParent::parse(&parent).is_some(), "{parent}");
}
