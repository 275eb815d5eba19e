//! The trace of an invocation: one root span, and one span per turn inside it.

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentInit, AgentSession, SnapshotId, SnapshotPolicy, agent, custom_agent, session_flow,
};
use everturn_ai::{FinishReason, Message};
use everturn_core::{Error, Registry};
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::alone;
use crate::traces::Traces;

/// Repeats the message; "boom" is an error.
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
    let _alone = alone();
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
    assert_eq!((first.parent, second.parent), (Some(root.id), Some(root.id)));
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
    let _alone = alone();
    let traces = Traces::listen();
    let mut connection = parrot().connect(AgentInit::default());

    connection.send("boom").await.unwrap();
    connection.output().await.unwrap();

    let turn = traces.span("runTurn-1");
    assert_eq!(turn.get("state"), Some("error"));
    assert_eq!(turn.get("isFailureSource"), Some("true"));
    assert_eq!(turn.get("metadata:agent:snapshotId"), None);
    let root = traces.span("parrot");
    assert_eq!(root.get("state"), Some("error"));
    assert_eq!(root.failure.as_deref(), Some("it went boom"));
    assert_eq!(root.get("isFailureSource"), None);
}

#[tokio::test]
async fn the_snapshot_of_a_round_and_of_the_invocations_end_are_on_their_spans() {
    let _alone = alone();
    let traces = Traces::listen();
    let registry = Registry::new();
    let model = ScriptedModel::new().replies([Reply::tool("stock", json!({})), Reply::text("Soup.")]);
    model.register(&registry, "scripted").unwrap();
    let stock = everturn_ai::Tool::new("stock", "Stocks.", |_: Value, _| async { Ok("done") });
    let cook = agent(&registry, "cook")
        .model("scripted")
        .tool(stock)
        .snapshots(SnapshotPolicy::always())
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let reply = cook.run_text("Soup?").await.unwrap();

    let snapshots = reply.snapshot_ids();
    let rounds = traces.ended();
    let round = rounds
        .iter()
        .filter(|span| span.name == "generate")
        .find_map(|span| span.get("metadata:agent:snapshotId"));
    assert_eq!(round, Some(snapshots[0].as_str()));
    assert_eq!(
        traces.span("runTurn-1").get("metadata:agent:snapshotId"),
        Some(snapshots[1].as_str())
    );
    assert_eq!(
        traces.span("cook").get("metadata:agent:snapshotId"),
        snapshots.last().map(SnapshotId::as_str)
    );
}

#[tokio::test]
async fn turns_and_snapshots_of_a_session_flow_have_the_names_of_session_flows() {
    let _alone = alone();
    let traces = Traces::listen();
    let registry = Registry::new();
    let cook = session_flow(&registry, "cook", |session: AgentSession| async move {
        session.run(|_| async { Ok(()) }).await?;
        session.set_custom("closed".into());
        Ok(session.result())
    })
    .snapshots(SnapshotPolicy::always())
    .store(MemoryStore::new())
    .define()
    .unwrap();

    let mut connection = cook.connect(AgentInit::default());
    connection.send("soup").await.unwrap();
    connection.send("stew").await.unwrap();
    let output = connection.output().await.unwrap();

    let snapshots = output.snapshot_ids.unwrap();
    let root = traces.span("cook");
    assert_eq!(root.get("metadata:subtype"), Some("agent"));
    for (turn, snapshot) in ["sessionFlow/turn/0", "sessionFlow/turn/1"]
        .into_iter()
        .zip(&snapshots)
    {
        let turn = traces.span(turn);
        assert_eq!(turn.parent, Some(root.id));
        assert_eq!(turn.get("type"), Some("flowStep"));
        assert_eq!(turn.get("metadata:sessionFlow"), Some("cook"));
        assert_eq!(turn.get("metadata:snapshotId"), Some(snapshot.as_str()));
        assert_eq!(turn.get("metadata:agent:snapshotId"), Some(snapshot.as_str()));
    }
    assert_eq!(root.get("metadata:sessionFlow"), Some("cook"));
    assert_eq!(root.get("metadata:snapshotId"), Some(snapshots[2].as_str()));
    assert!(registry.get("/session-flow/cook").is_some());
    assert!(registry.get("/snapshot-store/cook/getSnapshot").is_some());
}
