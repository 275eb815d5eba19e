//! The trace of an invocation: one root span, and one span per turn inside it.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

#[path = "../../everturn-core/tests/traces/mod.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod traces;

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, AgentInit, AgentSession, SnapshotId, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::{Error, Registry};
use serde_json::Value;
use traces::Traces;

/// Repeats what it hears; "boom" is an error.
fn parrot() -> Agent {
    custom_agent(&Registry::new(), "parrot", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let heard = turn
                    .message()
                    .map(|message| message.text().into_owned())
                    .unwrap_or_default();
                if heard == "boom" {
                    return Err(Error::internal("it went boom").into());
                }
                turn.add_message(Message::model(heard));
                Ok(FinishReason::Stop)
            })
            .await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap()
}

#[tokio::test]
async fn each_turn_has_a_span_with_its_input_its_state_and_its_snapshot() {
    let traces = Traces::listen();
    let mut connection = parrot().connect(AgentInit {
        session_id: Some("s".into()),
        ..AgentInit::default()
    });

    connection.send("one").await.unwrap();
    connection.send("two").await.unwrap();
    let output = connection.output().await.unwrap();

    let (root, first, second) = (
        traces.span("parrot"),
        traces.span("runTurn-1"),
        traces.span("runTurn-2"),
    );
    assert_eq!(root.get("type"), Some("action"));
    assert_eq!(root.get("metadata:subtype"), Some("agent"));
    assert_eq!(root.get("metadata:agent:sessionId"), Some("s"));
    assert_eq!(root.get("init"), Some(r#"{"sessionId":"s"}"#));
    assert_eq!((first.parent, second.parent), (root.id, root.id));
    assert_eq!(first.get("type"), Some("flowStep"));
    assert_eq!(first.get("metadata:subtype"), None);
    assert_eq!(
        second.get("metadata:agent:snapshotId"),
        output.snapshot_id.as_ref().map(SnapshotId::as_str)
    );

    let input: Value = serde_json::from_str(first.get("input").unwrap()).unwrap();
    let state: Value = serde_json::from_str(second.get("output").unwrap()).unwrap();
    assert_eq!(input["message"]["content"][0]["text"], "one");
    assert_eq!(state["state"]["messages"].as_array().map(Vec::len), Some(4));
}

#[tokio::test]
async fn a_failed_turn_closes_its_span_in_error_and_names_no_snapshot() {
    let traces = Traces::listen();
    let mut connection = parrot().connect(AgentInit::default());

    connection.send("boom").await.unwrap();
    connection.output().await.unwrap();

    let turn = traces.span("runTurn-1");
    assert_eq!(turn.get("state"), Some("error"));
    assert_eq!(turn.get("isFailureSource"), Some("true"));
    assert_eq!(turn.get("metadata:agent:snapshotId"), None);
    assert_eq!(traces.span("parrot").get("state"), Some("success"));
}
