//! The application's subscriber: a response names its trace, and a failed call is a log line. A separate
//! program: tests without a subscriber would determine for all tests whether spans are created.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

#[path = "it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "this program uses a part of it")]
mod support;

use everturn_core::{Error, Registry};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::json;
use support::Served;
use tracing_subscriber::layer::SubscriberExt;

#[tokio::test]
async fn an_answer_names_the_trace_and_the_span_of_its_call() {
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // The test's runtime has one thread, so this reaches the server's tasks and nothing else.
    let _traced = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let registry = Registry::new();
    registry
        .define_flow("double", |n: i64| async move { Ok(n * 2) })
        .unwrap();
    let server = Served::of(&registry).await;

    let answered = server.post("/flows/double", &json!({ "data": 21 })).await;
    let refused = server.post("/flows/double", &json!({ "data": "x" })).await;

    for answer in [&answered, &refused] {
        let (trace, span) = (
            answer.header("x-genkit-trace-id"),
            answer.header("x-genkit-span-id"),
        );
        assert_eq!(trace.map(str::len), Some(32), "{answer:?}");
        assert_eq!(span.map(str::len), Some(16), "{answer:?}");
    }
    assert_ne!(
        answered.header("x-genkit-trace-id"),
        refused.header("x-genkit-trace-id")
    );
}

#[tokio::test]
async fn a_failed_call_is_one_error_with_the_id_that_its_answer_has() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.reopen().unwrap())
        .with_ansi(false)
        .finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    let registry = Registry::new();
    registry
        .define_flow("pay", |(): ()| async {
            let cause = std::io::Error::other("connection refused");
            Err::<(), _>(Error::unavailable("the bank is closed").with_source(cause).into())
        })
        .unwrap();
    let server = Served::of(&registry).await;

    let failed = server.post("/flows/pay", &json!({ "data": null })).await;
    let streamed = server.stream("/flows/pay", &json!({ "data": null })).await;
    server.post("/flows/pay", &json!({ "data": 7 })).await;

    let log = std::fs::read_to_string(log.path()).unwrap();
    let errors: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(errors.len(), 2, "{log}");
    for (error, answer) in errors.iter().zip([&failed, &streamed]) {
        let id = answer.header("x-request-id").unwrap();
        for part in ["the bank is closed", "connection refused", "UNAVAILABLE", id] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    assert!(log.contains("a call was refused"), "{log}");
}
