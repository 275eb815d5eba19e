//! The built-in middleware by name: spellings, configurations, order.

use everturn_ai::builtin_middleware::{Fallback, Retry, register_builtin_middleware};
use everturn_ai::{Generate, GenerateActionOptions, Message, MiddlewareRef, middleware_descriptions, reason};
use everturn_core::{Error, Registry, Result, Status};
use serde_json::{Value, json};

use crate::middleware_support::{Reply, Script};

fn registry() -> Registry {
    let registry = Registry::new();
    register_builtin_middleware(&registry).unwrap();
    registry
}

fn unavailable() -> Reply {
    Reply::error(Error::unavailable("busy"))
}

/// Asks a model that answers at once, with a middleware by name.
async fn use_by_name(name: &str, config: Value) -> Result<()> {
    let registry = registry();
    Script::register(&registry, "m", [Reply::text("hello")]);
    let middleware = MiddlewareRef::new(name).with_config(config);
    Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(middleware)
        .run()
        .await
        .map(|_| ())
}

#[test]
fn every_middleware_is_described_once() {
    let names: Vec<String> = middleware_descriptions(&registry())
        .into_iter()
        .map(|desc| desc.name)
        .collect();

    let mut expected = vec![
        "augmentWithContext",
        "fallback",
        "retry",
        "simulateConstrainedGeneration",
        "simulateSystemPrompt",
        "toolApproval",
        "validateSupport",
    ];
    if cfg!(feature = "filesystem") {
        expected.extend(["filesystem", "skills"]);
    }
    if cfg!(feature = "download") {
        expected.push("downloadRequestMedia");
    }
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn descriptions_show_the_keys_of_the_configuration() {
    let descriptions = middleware_descriptions(&registry());
    let retry = descriptions
        .iter()
        .find(|description| description.name == "retry")
        .unwrap();

    let schema = retry.config_schema.as_ref().unwrap();
    let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "maxRetries",
            "statuses",
            "initialDelayMs",
            "maxDelayMs",
            "backoffFactor",
            "noJitter"
        ]
    );
    assert_eq!(schema["properties"]["maxRetries"]["default"], json!(3));
    assert_eq!(schema["properties"]["initialDelayMs"]["default"], json!(1000.0));
    assert_eq!(
        schema["properties"]["statuses"]["default"][0],
        json!("UNAVAILABLE")
    );
    assert!(retry.description.is_some());
}

#[tokio::test]
async fn names_may_have_the_prefix_of_other_runtimes() {
    for name in ["retry", "genkit-middleware/retry"] {
        use_by_name(name, json!({ "maxRetries": 1 })).await.unwrap();
    }
}

#[tokio::test]
async fn an_unknown_name_is_not_found() {
    let error = use_by_name("retries", json!({})).await.unwrap_err();

    assert_eq!(error.status(), Status::NotFound);
    assert!(error.is(reason::MIDDLEWARE_NOT_FOUND));
}

#[tokio::test]
async fn a_configuration_that_makes_no_sense_is_refused() {
    let mut cases = vec![
        ("retry", json!({ "maxRetry": 1 })),
        ("retry", json!({ "maxRetries": -1 })),
        ("retry", json!({ "maxRetries": 1.5 })),
        ("retry", json!({ "statuses": ["UNAVAILBLE"] })),
        ("retry", json!({ "initialDelayMs": -5 })),
        ("retry", json!({ "maxDelayMs": 1e300 })),
        ("retry", json!({ "backoffFactor": -1 })),
        ("retry", json!("often")),
        ("fallback", json!({})),
        ("fallback", json!({ "models": [] })),
        ("fallback", json!({ "models": [7] })),
        ("fallback", json!({ "models": ["m"], "onError": true })),
        ("toolApproval", json!({ "approved": "launch" })),
        ("simulateSystemPrompt", json!({ "preface": 7 })),
        ("augmentWithContext", json!({ "citationKey": 7 })),
        ("validateSupport", json!({ "supports": "all" })),
        ("simulateConstrainedGeneration", json!({ "renderer": "mine" })),
    ];
    if cfg!(feature = "filesystem") {
        cases.extend([
            ("filesystem", json!({})),
            ("filesystem", json!({ "rootDirectory": "" })),
            ("filesystem", json!({ "rootDirectory": " " })),
            (
                "filesystem",
                json!({ "rootDirectory": "/there/is/no/such/folder" }),
            ),
            ("filesystem", json!({ "rootDirectory": ".", "allowWrite": true })),
            ("skills", json!({ "skillPaths": "skills" })),
        ]);
    }
    for (name, config) in cases {
        let error = use_by_name(name, config.clone())
            .await
            .expect_err(&format!("{name} {config}"));

        assert_eq!(
            error.status(),
            Status::InvalidArgument,
            "{name} {config}: {error}"
        );
        assert!(error.message().contains(name), "{error}");
    }
}

#[tokio::test]
async fn a_missing_or_null_configuration_is_the_default() {
    use_by_name("retry", Value::Null).await.unwrap();
    use_by_name("retry", json!({})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn configurations_reach_the_middleware() {
    let registry = registry();
    let script = Script::register(
        &registry,
        "m",
        [unavailable(), unavailable(), Reply::text("at last")],
    );
    let config = json!({
        "maxRetries": 2, "statuses": ["UNAVAILABLE"], "initialDelayMs": 10, "maxDelayMs": 15, "backoffFactor": 3,
        "noJitter": true,
    });
    let started = tokio::time::Instant::now();

    let middleware = MiddlewareRef::new("retry").with_config(config);
    Generate::new(&registry)
        .model("m")
        .prompt("hi")
        .use_middleware(middleware)
        .run()
        .await
        .unwrap();

    assert_eq!(script.calls(), 3);
    assert_eq!(started.elapsed().as_millis(), 10 + 15);
}

#[tokio::test]
async fn fallback_models_are_names_or_names_with_configuration() {
    let registry = registry();
    Script::register(&registry, "first", [unavailable()]);
    Script::register(&registry, "second", [unavailable()]);
    let third = Script::register(&registry, "third", [Reply::text("here")]);
    let config =
        json!({ "models": ["second", { "name": "third", "config": { "topK": 1 } }], "isolateConfig": true });

    let middleware = MiddlewareRef::new("fallback").with_config(config);
    Generate::new(&registry)
        .model("first")
        .prompt("hi")
        .use_middleware(middleware)
        .run()
        .await
        .unwrap();

    assert_eq!(third.requests()[0].config, Some(json!({ "topK": 1 })));
}

#[tokio::test(start_paused = true)]
async fn options_from_outside_refer_to_middleware_by_name() {
    let registry = registry();
    let script = Script::register(&registry, "m", [unavailable(), Reply::text("at last")]);
    let options = GenerateActionOptions {
        model: Some("m".to_owned()),
        messages: Message::user("hi").into(),
        middleware: Some(vec![MiddlewareRef::new("genkit-middleware/retry")]),
        ..GenerateActionOptions::default()
    };

    Generate::from_options(&registry, options).run().await.unwrap();

    assert_eq!(script.calls(), 2);
}

/// How often two models, which always fail, are called.
async fn calls(build: impl FnOnce(Generate<Value>, Retry, Fallback) -> Generate<Value>) -> [usize; 2] {
    let registry = Registry::new();
    let always_busy = || std::iter::repeat_with(unavailable).take(10);
    let first = Script::register(&registry, "first", always_busy());
    let second = Script::register(&registry, "second", always_busy());
    let generate = Generate::new(&registry).model("first").prompt("hi");

    build(
        generate,
        Retry::default().max_retries(2),
        Fallback::new(["second"]),
    )
    .run()
    .await
    .unwrap_err();

    [first.calls(), second.calls()]
}

#[tokio::test(start_paused = true)]
async fn the_first_in_the_list_is_the_outermost() {
    let retried_as_a_whole =
        calls(|generate, retry, fallback| generate.use_middleware(retry).use_middleware(fallback)).await;
    let retried_first =
        calls(|generate, retry, fallback| generate.use_middleware(fallback).use_middleware(retry)).await;

    assert_eq!(retried_as_a_whole, [3, 3]);
    assert_eq!(retried_first, [3, 1]);
}

#[test]
fn builtin_middleware_is_registered_once() {
    let registry = registry();

    assert_eq!(
        register_builtin_middleware(&registry).unwrap_err().status(),
        Status::AlreadyExists
    );
}
