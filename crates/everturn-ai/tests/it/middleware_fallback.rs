//! Falling back on other models.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use everturn_ai::builtin_middleware::Fallback;
use everturn_ai::{Generate, ModelReference, ModelResponseChunk, model_hook, reason};
use everturn_core::{Emitter, Error, Registry, Status};
use serde_json::{Value, json};

use crate::middleware_support::{Reply, Script};

/// A registry with the model `first`, which fails, and the fallback models `second` and `third`.
fn registry(failure: Error, second: Reply, third: Reply) -> (Registry, [Script; 3]) {
    let registry = Registry::new();
    let scripts = [
        Script::register(&registry, "first", [Reply::error(failure)]),
        Script::register(&registry, "second", [second]),
        Script::register(&registry, "third", [third]),
    ];
    (registry, scripts)
}

fn calls(scripts: &[Script; 3]) -> [usize; 3] {
    scripts.each_ref().map(Script::calls)
}

fn generate(registry: &Registry) -> Generate<Value> {
    Generate::new(registry).model("first").prompt("hi")
}

#[tokio::test]
async fn models_are_asked_in_order_until_one_answers() {
    let (registry, scripts) = registry(
        Error::unavailable("down"),
        Reply::error(Error::not_found("no such id")),
        Reply::text("third here"),
    );

    let answer = generate(&registry)
        .use_middleware(Fallback::new(["second", "third"]))
        .run()
        .await
        .unwrap();

    assert_eq!(answer.text(), "third here");
    assert_eq!(calls(&scripts), [1, 1, 1]);
}

#[tokio::test]
async fn models_after_the_one_that_answers_are_not_asked() {
    let (registry, scripts) = registry(
        Error::unavailable("down"),
        Reply::text("second here"),
        Reply::text("unused"),
    );

    generate(&registry)
        .use_middleware(Fallback::new(["second", "third"]))
        .run()
        .await
        .unwrap();

    assert_eq!(calls(&scripts), [1, 1, 0]);
}

#[tokio::test]
async fn the_last_error_is_returned_when_all_fail() {
    let (registry, scripts) = registry(
        Error::unavailable("one"),
        Reply::error(Error::internal("two")),
        Reply::error(Error::resource_exhausted("three")),
    );

    let error = generate(&registry)
        .use_middleware(Fallback::new(["second", "third"]))
        .run()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::ResourceExhausted);
    assert_eq!(calls(&scripts), [1, 1, 1]);
}

#[tokio::test]
async fn other_statuses_and_unclassified_errors_are_returned_at_once() {
    let foreign = Error::foreign("seven".parse::<u8>().unwrap_err());
    for failure in [
        Error::invalid_argument("your fault"),
        Error::cancelled("enough"),
        foreign,
    ] {
        let (registry, scripts) = registry(failure, Reply::text("unused"), Reply::text("unused"));

        generate(&registry)
            .use_middleware(Fallback::new(["second", "third"]))
            .run()
            .await
            .unwrap_err();

        assert_eq!(calls(&scripts), [1, 0, 0]);
    }
}

#[tokio::test]
async fn a_fallback_model_s_own_mistake_is_returned_at_once() {
    let (registry, scripts) = registry(
        Error::unavailable("down"),
        Reply::error(Error::invalid_argument("bad")),
        Reply::text("unused"),
    );

    let error = generate(&registry)
        .use_middleware(Fallback::new(["second", "third"]))
        .run()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert_eq!(calls(&scripts), [1, 1, 0]);
}

#[tokio::test]
async fn statuses_can_be_chosen() {
    let (registry, scripts) = registry(
        Error::data_loss("gone"),
        Reply::text("second here"),
        Reply::text("unused"),
    );

    let fallback = Fallback::new(["second"]).statuses([Status::DataLoss]);
    generate(&registry).use_middleware(fallback).run().await.unwrap();

    assert_eq!(calls(&scripts), [1, 1, 0]);
}

/// The configuration that the fallback model gets when the request's is `{"temperature": 1}`.
async fn config_seen(fallback: Fallback) -> Option<Value> {
    let (registry, scripts) = registry(
        Error::unavailable("down"),
        Reply::text("ok"),
        Reply::text("unused"),
    );

    generate(&registry)
        .config(json!({ "temperature": 1 }))
        .use_middleware(fallback)
        .run()
        .await
        .unwrap();

    scripts[1].requests()[0].config.clone()
}

#[tokio::test]
async fn a_reference_s_configuration_wins_then_the_request_s_unless_isolated() {
    let configured = ModelReference::new("second").with_config(json!({ "topK": 3 }));

    assert_eq!(
        config_seen(Fallback::new([configured.clone()])).await,
        Some(json!({ "topK": 3 }))
    );
    assert_eq!(
        config_seen(Fallback::new([configured]).isolate_config()).await,
        Some(json!({ "topK": 3 }))
    );
    assert_eq!(
        config_seen(Fallback::new(["second"])).await,
        Some(json!({ "temperature": 1 }))
    );
    assert_eq!(
        config_seen(Fallback::new(["second"]).isolate_config()).await,
        None
    );
}

#[tokio::test]
async fn a_fallback_model_that_does_not_exist_is_a_mistake_and_not_an_outage() {
    let (registry, scripts) = registry(
        Error::unavailable("down"),
        Reply::text("unused"),
        Reply::text("unused"),
    );

    let error = generate(&registry)
        .use_middleware(Fallback::new(["missing", "second"]))
        .run()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::NotFound);
    assert!(error.is(reason::MODEL_NOT_FOUND));
    assert!(error.message().contains("missing"), "{error}");
    assert_eq!(calls(&scripts), [1, 0, 0]);
}

#[tokio::test]
async fn middleware_inside_does_not_see_fallback_models() {
    let (registry, _scripts) = registry(
        Error::unavailable("down"),
        Reply::text("second here"),
        Reply::text("unused"),
    );
    let passed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&passed);
    let inside = model_hook(move |call, next| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { Ok(next.run(call).await?) }
    });

    generate(&registry)
        .use_middleware(Fallback::new(["second"]))
        .use_middleware(inside)
        .run()
        .await
        .unwrap();

    assert_eq!(passed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_fallback_model_streams_to_the_same_receiver() {
    let (registry, _scripts) = registry(
        Error::unavailable("down"),
        Reply::text("ab").after_chunks(["a", "b"]),
        Reply::text("unused"),
    );
    let streamed = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&streamed);

    generate(&registry)
        .use_middleware(Fallback::new(["second"]))
        .emitter(Emitter::new(move |chunk: ModelResponseChunk| {
            sink.lock().unwrap().push_str(&chunk.text());
            async { Ok(()) }
        }))
        .run()
        .await
        .unwrap();

    assert_eq!(*streamed.lock().unwrap(), "ab");
}
