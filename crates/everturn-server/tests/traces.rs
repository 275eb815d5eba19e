//! Where tracing goes to OpenTelemetry, an answer names its trace. Alone in its process: tests beside it that nobody
//! listens to would decide for all whether spans are worth making.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

#[path = "it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "this program uses a part of it")]
mod support;

use everturn_core::Registry;
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
