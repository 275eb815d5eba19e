//! The trace of a bidirectional invocation: one root span for as long as the connection lives.

use everturn_core::{ActionType, BidiAction, Context, DynAction, Emitter, Error, Inputs, JsonCall, run};
use serde_json::json;

use crate::alone;
use crate::support::idle;
use crate::traces::Traces;

type Counting = BidiAction<u8, u8, u32, u8>;

/// Adds each input in its own step; zero is an error.
fn adds() -> Counting {
    BidiAction::new(
        ActionType::AGENT,
        "adds",
        |start: u8, mut inputs: Inputs<u8>, emitter: Emitter<u8>, _| async move {
            let mut sum = u32::from(start);
            while let Some(input) = inputs.next().await {
                run(&format!("add {input}"), || async {
                    if input == 0 {
                        Err(Error::out_of_range("nothing to add").into())
                    } else {
                        Ok(())
                    }
                })
                .await?;
                sum += u32::from(input);
                emitter.send(input).await?;
            }
            Ok(sum)
        },
    )
}

#[tokio::test]
async fn the_root_span_is_open_while_the_connection_is() {
    let _alone = alone();
    let traces = Traces::listen();
    let mut connection = adds().connect(10);

    connection.send(1).await.unwrap();
    connection.receive().next().await.unwrap();
    assert_eq!(
        traces
            .ended()
            .iter()
            .map(|span| span.name.as_str())
            .collect::<Vec<_>>(),
        ["add 1"]
    );
    connection.output().await.unwrap();

    let (root, step) = (traces.span("adds"), traces.span("add 1"));
    assert_eq!(step.parent, Some(root.id));
    assert_eq!(
        root.all(),
        [
            ("init", "10"),
            ("isRoot", "true"),
            ("key", "/agent/adds"),
            ("metadata:subtype", "agent"),
            ("name", "adds"),
            ("output", "11"),
            ("path", "/{adds,t:action,s:agent}"),
            ("state", "success"),
            ("type", "action"),
        ]
    );
}

#[tokio::test]
async fn a_json_connection_has_the_same_span_and_records_init_only_if_there_was_one() {
    let _alone = alone();
    let traces = Traces::listen();
    let adds = adds();

    let mut with_init = adds.connect_json(Some(json!(10)), &Context::new()).unwrap();
    with_init.send(json!(1)).await.unwrap();
    with_init.output().await.unwrap();
    adds.run_json(JsonCall::new(2)).await.unwrap();

    let roots: Vec<_> = traces
        .ended()
        .into_iter()
        .filter(|span| span.name == "adds")
        .collect();
    assert_eq!(
        (roots[0].get("init"), roots[0].get("output")),
        (Some("10"), Some("11"))
    );
    assert_eq!((roots[1].get("init"), roots[1].get("output")), (None, Some("2")));
    assert!(roots.iter().all(|root| root.get("input").is_none()));
}

#[tokio::test]
async fn the_span_of_a_connection_is_a_child_of_the_span_that_opened_it() {
    let _alone = alone();
    let traces = Traces::listen();

    run("opens", || async {
        let mut connection = adds().connect(0);
        Ok(connection.output().await?)
    })
    .await
    .unwrap();

    let (opens, root) = (traces.span("opens"), traces.span("adds"));
    assert_eq!(opens.parent, None);
    assert_eq!(root.parent, Some(opens.id));
    assert_eq!(root.get("isRoot"), None);
    assert_eq!(
        root.get("path"),
        Some("/{opens,t:flowStep}/{adds,t:action,s:agent}")
    );
}

#[tokio::test]
async fn a_failed_turn_fails_the_root_and_is_blamed() {
    let _alone = alone();
    let traces = Traces::listen();
    let mut connection = adds().connect(0);

    connection.send(0).await.unwrap();
    connection.output().await.unwrap_err();

    let (root, turn) = (traces.span("adds"), traces.span("add 0"));
    assert_eq!(
        (root.get("state"), root.failure.as_deref()),
        (Some("error"), Some("nothing to add"))
    );
    assert_eq!(
        (root.get("isFailureSource"), turn.get("isFailureSource")),
        (None, Some("true"))
    );
}

#[tokio::test]
async fn messages_that_are_refused_are_seen_in_the_trace() {
    let _alone = alone();
    let traces = Traces::listen();
    let adds = adds();

    adds.connect_json(Some(json!("ten")), &Context::new())
        .unwrap_err();
    adds.run_json(JsonCall {
        init: Some(json!(10)),
        ..JsonCall::default()
    })
    .await
    .unwrap_err();
    let mut connection = adds.connect_json(None, &Context::new()).unwrap();
    connection.send(json!("one")).await.unwrap();
    connection.output().await.unwrap_err();

    let errors: Vec<_> = traces
        .ended()
        .iter()
        .map(|span| span.failure.as_deref().unwrap().to_owned())
        .collect();
    assert_eq!(errors.len(), 3);
    assert!(
        errors[0].starts_with("invalid init for '/agent/adds': at ''"),
        "{}",
        errors[0]
    );
    assert!(errors[1].contains("needs an input"), "{}", errors[1]);
    assert!(
        errors[2].starts_with("invalid input for '/agent/adds': at ''"),
        "{}",
        errors[2]
    );
}

#[tokio::test]
async fn a_connection_that_is_cancelled_or_dropped_ends_its_span_as_failed() {
    let _alone = alone();
    let traces = Traces::listen();

    let cancelled = adds().connect(0);
    idle().await;
    cancelled.cancel();
    cancelled.done().await;
    let dropped = adds().connect(0);
    idle().await;
    drop(dropped);
    idle().await;

    let errors: Vec<_> = traces
        .ended()
        .iter()
        .map(|span| span.failure.as_deref().unwrap().to_owned())
        .collect();
    assert_eq!(
        errors,
        [
            "the invocation was cancelled",
            "the work was dropped before it ended"
        ]
    );
}

#[tokio::test]
async fn a_panic_is_on_the_root_span() {
    let _alone = alone();
    let traces = Traces::listen();
    let careless = BidiAction::new(
        ActionType::CUSTOM,
        "careless",
        |(): (), _: Inputs<()>, _: Emitter<()>, _| async move {
            panic!("oops") as everturn_core::HandlerResult<()>
        },
    );

    careless.connect(()).output().await.unwrap_err();

    assert_eq!(
        traces.span("careless").failure.as_deref(),
        Some("/custom/careless panicked: oops")
    );
}
