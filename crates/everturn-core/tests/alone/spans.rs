//! The trace of a flow in the developer tools: names, attributes, paths, nesting.

use everturn_core::{
    Action, ActionType, Context, DynAction, Emitter, Error, HandlerResult, JsonCall, Registry, Result, Schema,
};
use everturn_core::{Reason, SpanKind, SpanRecorder, in_span, run};
use serde_json::{Value, json};

use crate::alone;
use crate::support::idle;
use crate::traces::Traces;

/// A flow whose step calls another action, which fails if asked for nothing.
fn menu() -> Action<String, Vec<String>> {
    let cook = Action::new(ActionType::MODEL, "chef/cook", |dish: String, _| async move {
        if dish.is_empty() {
            return Err(Error::invalid_argument("nothing to cook").into());
        }
        Ok(format!("hot {dish}"))
    });
    Registry::new()
        .define_flow("menu", move |dish: String| {
            let cook = cook.clone();
            async move {
                Ok(vec![
                    run("prepare", || async { Ok(cook.run(dish).await?) }).await?,
                ])
            }
        })
        .expect("the name is free")
}

#[tokio::test]
async fn a_flow_that_succeeds_is_traced_with_its_steps_and_what_they_call() {
    let _alone = alone();
    let traces = Traces::listen();

    menu().run("soup".to_owned()).await.unwrap();

    assert_eq!(
        traces.span("menu").all(),
        [
            ("input", r#""soup""#),
            ("isRoot", "true"),
            ("key", "/flow/menu"),
            ("metadata:subtype", "flow"),
            ("name", "menu"),
            ("output", r#"["hot soup"]"#),
            ("path", "/{menu,t:flow}"),
            ("state", "success"),
            ("type", "action"),
        ]
    );
    assert_eq!(
        traces.span("prepare").all(),
        [
            ("metadata:flow:name", "menu"),
            ("name", "prepare"),
            ("output", r#""hot soup""#),
            ("path", "/{menu,t:flow}/{prepare,t:flowStep}"),
            ("state", "success"),
            ("type", "flowStep"),
        ]
    );
    assert_eq!(
        traces.span("chef/cook").all(),
        [
            ("input", r#""soup""#),
            ("key", "/model/chef/cook"),
            ("metadata:flow:name", "menu"),
            ("metadata:subtype", "model"),
            ("name", "chef/cook"),
            ("output", r#""hot soup""#),
            (
                "path",
                "/{menu,t:flow}/{prepare,t:flowStep}/{chef/cook,t:action,s:model}"
            ),
            ("state", "success"),
            ("type", "action"),
        ]
    );
    assert!(traces.ended().iter().all(|span| span.failure.is_none()));
}

#[tokio::test]
async fn spans_nest_as_calls_do() {
    let _alone = alone();
    let traces = Traces::listen();

    menu().run("soup".to_owned()).await.unwrap();

    let (menu, prepare, cook) = (
        traces.span("menu"),
        traces.span("prepare"),
        traces.span("chef/cook"),
    );
    assert_eq!(menu.parent, None);
    assert_eq!(prepare.parent, Some(menu.id));
    assert_eq!(cook.parent, Some(prepare.id));
}

#[tokio::test]
async fn a_failure_is_on_every_span_it_passes_and_blamed_on_the_first() {
    let _alone = alone();
    let traces = Traces::listen();

    menu().run(String::new()).await.unwrap_err();

    for name in ["menu", "prepare", "chef/cook"] {
        let span = traces.span(name);
        assert_eq!(span.get("state"), Some("error"), "{name}");
        assert_eq!(span.failure.as_deref(), Some("nothing to cook"), "{name}");
        assert_eq!(span.get("output"), None, "{name}");
        let source = (name == "chef/cook").then_some("true");
        assert_eq!(span.get("isFailureSource"), source, "{name}");
    }
}

#[tokio::test]
async fn a_failure_given_another_face_is_still_blamed_on_where_it_began() {
    #[derive(Debug)]
    struct Foreign(Box<dyn std::error::Error + Send + Sync>);

    impl std::fmt::Display for Foreign {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "foreign: {}", self.0)
        }
    }

    impl std::error::Error for Foreign {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(self.0.as_ref())
        }
    }

    let _alone = alone();
    let traces = Traces::listen();
    let inner = || async { run("inner", || async { Err::<(), _>(Error::aborted("no").into()) }).await };
    let sourced = run("sourced", || async {
        Ok(inner()
            .await
            .map_err(|error| Error::unavailable("try later").with_source(error))?)
    });
    let foreign = run("foreign", || async {
        Ok(inner().await.map_err(|error| Foreign(error.into()))?)
    });

    sourced.await.unwrap_err();
    foreign.await.unwrap_err();

    for span in traces.ended() {
        assert_eq!(
            span.get("isFailureSource").is_some(),
            span.name == "inner",
            "{}",
            span.name
        );
    }
}

#[tokio::test]
async fn input_that_is_refused_is_seen_in_the_trace() {
    let _alone = alone();
    let traces = Traces::listen();
    let action = Action::new(ActionType::CUSTOM, "strict", |n: u8, _| async move { Ok(n) });

    action.run_json(JsonCall::new("seven")).await.unwrap_err();

    let span = traces.span("strict");
    assert_eq!(span.get("input"), Some(r#""seven""#));
    assert_eq!(span.get("state"), Some("error"));
    assert_eq!(span.get("isFailureSource"), Some("true"));
    assert!(
        span.failure
            .as_deref()
            .unwrap()
            .contains("invalid input for '/custom/strict'")
    );
}

#[tokio::test]
async fn input_nested_too_deep_is_refused_before_it_is_recorded() {
    let _alone = alone();
    let traces = Traces::listen();
    let action = Action::new(
        ActionType::CUSTOM,
        "any",
        |value: Value, _| async move { Ok(value) },
    );
    let deep = (0..100_000).fold(Value::Null, |inner, _| Value::Array(vec![inner]));

    action.run_json(JsonCall::new(deep)).await.unwrap_err();

    let span = traces.span("any");
    assert_eq!(span.get("input"), None);
    assert!(span.failure.as_deref().unwrap().contains("nested deeper"));
}

#[tokio::test]
async fn a_payload_that_panics_while_it_is_recorded_fails_the_call() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Grenade {}

    impl serde::Serialize for Grenade {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            panic!("oops")
        }
    }

    let _alone = alone();
    let traces = Traces::listen();
    let action = Action::new(ActionType::CUSTOM, "takes", |_: Grenade, _| async { Ok(()) });

    let error = action.run(Grenade {}).await.unwrap_err();

    assert!(error.is(Reason::PANIC), "{error:?}");
    assert_eq!(
        traces.span("takes").failure.as_deref(),
        Some("/custom/takes panicked: oops")
    );
}

#[tokio::test]
async fn output_that_is_refused_is_seen_in_the_trace() {
    let _alone = alone();
    let traces = Traces::listen();
    let action = Action::new(ActionType::CUSTOM, "strict", |n: u8, _| async move { Ok(n) })
        .with_output_schema(Schema::from_json(json!({"type": "string"})).unwrap());

    action.run_json(JsonCall::new(7)).await.unwrap_err();

    let span = traces.span("strict");
    assert_eq!(span.get("output"), None);
    assert!(
        span.failure
            .as_deref()
            .unwrap()
            .contains("invalid output of '/custom/strict'")
    );
}

#[tokio::test]
async fn the_context_is_recorded_without_its_secrets() {
    let _alone = alone();
    let traces = Traces::listen();
    let context = Context::new()
        .with_value("auth", json!({"token": "hunter2"}))
        .with_value("secrets", json!(["hunter3"]))
        .with_value("tenant", 7);
    let action = Action::new(ActionType::CUSTOM, "acts", |(): (), _| async { Ok(()) });

    action.call((), context, Emitter::silent()).await.unwrap();

    assert_eq!(
        traces.span("acts").get("metadata:context"),
        Some(r#"{"auth":"<redacted>","secrets":"<redacted>","tenant":7}"#)
    );
}

#[tokio::test]
async fn every_kind_of_span_has_its_segment() {
    let _alone = alone();
    let traces = Traces::listen();
    let kinds = [
        ("f", SpanKind::Action(&ActionType::FLOW), "/{f,t:flow}"),
        ("u", SpanKind::Action(&ActionType::UTIL), "/{u,t:util}"),
        (
            "t",
            SpanKind::Action(&ActionType::TOOL_V2),
            "/{t,t:action,s:tool.v2}",
        ),
        ("s", SpanKind::FlowStep, "/{s,t:flowStep}"),
        ("x", SpanKind::Util, "/{x,t:util}"),
        ("p", SpanKind::PromptTemplate, "/{p,t:promptTemplate}"),
        ("d", SpanKind::Dotprompt, "/{d,t:dotprompt}"),
    ];

    for (name, kind, path) in kinds {
        in_span(name, kind, Context::new(), |_, _| async { Ok(()) })
            .await
            .unwrap();

        assert_eq!(traces.span(name).get("path"), Some(path));
    }
}

#[tokio::test]
async fn code_inside_can_add_to_its_span() {
    let _alone = alone();
    let traces = Traces::listen();

    run("runTurn-1", || async {
        let recorder = SpanRecorder::current();
        recorder.input(&json!({"message": "hi"}));
        recorder.session_id("s-1");
        recorder.snapshot_id("n-1");
        Ok(())
    })
    .await
    .unwrap();

    let span = traces.span("runTurn-1");
    assert_eq!(span.get("input"), Some(r#"{"message":"hi"}"#));
    assert_eq!(span.get("metadata:agent:sessionId"), Some("s-1"));
    assert_eq!(span.get("metadata:agent:snapshotId"), Some("n-1"));
}

#[tokio::test]
async fn a_panic_is_seen_in_the_trace() {
    let _alone = alone();
    let traces = Traces::listen();
    let flow = Registry::new()
        .define_flow("careless", |(): ()| async {
            Ok(run("slip", || async { panic!("oops") as HandlerResult<()> }).await?)
        })
        .unwrap();

    flow.run(()).await.unwrap_err();

    assert_eq!(traces.span("slip").get("state"), Some("error"));
    let flow = traces.span("careless");
    assert_eq!(flow.failure.as_deref(), Some("/flow/careless panicked: oops"));
    assert_eq!(flow.get("isFailureSource"), Some("true"));
}

#[tokio::test]
async fn work_that_is_cancelled_or_dropped_is_seen_in_the_trace() {
    let _alone = alone();
    let traces = Traces::listen();
    let stuck = Action::new(ActionType::CUSTOM, "stuck", |(): (), _| {
        std::future::pending::<HandlerResult<()>>()
    });
    let flow = Registry::new()
        .define_flow("outer", move |(): ()| {
            let stuck = stuck.clone();
            async move { Ok(run("step", || async { Ok(stuck.run(()).await?) }).await?) }
        })
        .unwrap();

    let cancelled = flow.stream(());
    idle().await;
    cancelled.cancel();
    idle().await;
    let spans = traces.ended();
    assert_eq!(
        spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(),
        ["stuck", "step", "outer"]
    );
    assert!(
        spans
            .iter()
            .all(|span| span.failure.as_deref() == Some("the invocation was cancelled"))
    );
    assert_eq!(
        spans
            .iter()
            .filter(|span| span.get("isFailureSource").is_some())
            .count(),
        1
    );

    let dropped = flow.stream(());
    idle().await;
    drop(dropped);
    idle().await;
    let spans = traces.ended().split_off(3);
    assert_eq!(spans.len(), 3);
    assert!(spans.iter().all(|span| span.get("state") == Some("error")));
}
