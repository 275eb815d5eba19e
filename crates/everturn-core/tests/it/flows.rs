//! Flows: a user's functions as actions, found in the registry, called typed and from outside.

use everturn_core::{ActionType, Emitter, Error, Inputs, JsonCall, Registry, Result, Status, run};
use serde_json::json;
use tokio::sync::mpsc;

use crate::support::{assert_failed, within};

#[tokio::test]
async fn a_flow_is_called_typed_and_found_by_its_key() {
    let registry = Registry::new();
    let double = registry
        .define_flow("double", |n: i64| async move { Ok(n * 2) })
        .unwrap();

    let found = registry.resolve("/flow/double").await.unwrap();

    assert_eq!(double.run(4).await.unwrap(), 8);
    assert_eq!(found.run_json(JsonCall::new(4)).await.unwrap(), 8);
    assert_eq!(found.descriptor().action_type, ActionType::FLOW);
}

#[tokio::test]
async fn a_name_is_defined_once() {
    let registry = Registry::new();
    registry.define_flow("menu", |(): ()| async { Ok(()) }).unwrap();

    let again = registry.define_streaming_flow("menu", |(): (), _: Emitter<()>| async { Ok(()) });

    assert_failed(again, Status::AlreadyExists, None);
}

#[tokio::test]
async fn a_streaming_flow_can_check_for_a_listener() {
    let registry = Registry::new();
    let flow = registry
        .define_streaming_flow("received", |(): (), emitter: Emitter<u8>| async move {
            emitter.send(1).await?;
            Ok(emitter.is_streaming())
        })
        .unwrap();

    assert!(!flow.run(()).await.unwrap());
    assert!(flow.stream(()).output().await.unwrap());
    let erased = registry.resolve("/flow/received").await.unwrap();
    assert_eq!(erased.run_json(JsonCall::default()).await.unwrap(), false);
}

#[tokio::test]
async fn a_streaming_flow_called_in_json_streams_json() {
    let registry = Registry::new();
    registry
        .define_streaming_flow("pairs", |n: u8, emitter: Emitter<(u8, String)>| async move {
            for i in 0..n {
                emitter.send((i, i.to_string())).await?;
            }
            Ok(n)
        })
        .unwrap();
    let (chunks, mut received) = mpsc::channel(8);
    let call = JsonCall {
        emitter: Some(Emitter::channel(chunks)),
        ..JsonCall::new(2)
    };

    let output = registry
        .resolve("/flow/pairs")
        .await
        .unwrap()
        .run_json(call)
        .await
        .unwrap();

    assert_eq!(output, 2);
    assert_eq!(received.recv().await.unwrap().as_str(), r#"[0,"0"]"#);
    assert_eq!(received.recv().await.unwrap().as_str(), r#"[1,"1"]"#);
    assert_eq!(received.recv().await, None);
}

#[tokio::test]
async fn a_listener_that_leaves_is_an_error_to_the_flow() {
    let registry = Registry::new();
    let talks = registry
        .define_streaming_flow("talks", |(): (), emitter: Emitter<u8>| async move {
            Ok(emitter.send(1).await?)
        })
        .unwrap();
    let (chunks, received) = mpsc::channel(1);
    drop(received);

    let result = talks
        .call((), everturn_core::Context::new(), Emitter::channel(chunks))
        .await;

    assert_failed(result, Status::Cancelled, None);
}

#[tokio::test(start_paused = true)]
async fn a_bidirectional_flow_is_found_and_opened_from_outside() {
    let registry = Registry::new();
    registry
        .define_bidi_flow(
            "echo",
            |greeting: String, mut inputs: Inputs<String>, emitter: Emitter<String>| async move {
                while let Some(line) = inputs.next().await {
                    emitter.send(format!("{greeting}{line}")).await?;
                }
                Ok(())
            },
        )
        .unwrap();
    let echo = registry.resolve("/flow/echo").await.unwrap();

    let mut connection = echo
        .connect_json(Some(json!("> ")), &everturn_core::Context::new())
        .unwrap();
    connection.send(json!("hello")).await.unwrap();

    assert_eq!(within(connection.receive().next()).await, Some(json!("> hello")));
    assert_eq!(within(connection.output()).await.unwrap(), json!(null));
}

#[tokio::test]
async fn a_step_gives_what_its_function_gives() {
    let fine: Result<u8> = run("fine", || async { Ok(1) }).await;
    let bad: Result<u8> = run("bad", || async { Err(Error::out_of_range("too many").into()) }).await;

    assert_eq!(fine.unwrap(), 1);
    assert_failed(bad, Status::OutOfRange, None);
}

#[test]
fn a_flow_describes_itself() {
    let registry = Registry::new();
    let flow = registry
        .define_streaming_flow("count", |to: u8, _: Emitter<String>| async move { Ok(to > 1) })
        .unwrap()
        .with_description("Counts.")
        .with_metadata([("since".to_owned(), json!(1))].into_iter().collect());

    let described = serde_json::to_value(flow.descriptor()).unwrap();

    assert_eq!(
        described,
        json!({
            "key": "/flow/count",
            "type": "flow",
            "name": "count",
            "description": "Counts.",
            "inputSchema": {"title": "uint8", "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255},
            "outputSchema": {"title": "boolean", "type": "boolean"},
            "streamSchema": {"title": "string", "type": "string"},
            "metadata": {"since": 1},
        })
    );
}

#[test]
fn a_bidirectional_flow_reports_how_to_open_it() {
    let registry = Registry::new();
    let flow = registry
        .define_bidi_flow("talk", |_: String, _: Inputs<u8>, _: Emitter<u8>| async move {
            Ok(())
        })
        .unwrap();

    let described = serde_json::to_value(flow.descriptor()).unwrap();

    assert_eq!(described["initSchema"]["type"], "string");
    assert_eq!(described["metadata"], json!({"bidi": true}));
}
