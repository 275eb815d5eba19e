//! Clients that connect to a thread.

use everturn_agent::{AgentAction, AgentInit, AgentInput};
use everturn_core::{ActionType, Context, downcast};
use everturn_testkit::{Gate, Reply, ScriptedModel};
use serde_json::json;

use crate::support::{Answer, Served, first, types, user};

#[tokio::test]
async fn an_unknown_thread_is_empty() {
    let server = Served::answering(["never"]).await;

    assert_eq!(
        types(&server.connect("keeper").await),
        ["RUN_STARTED", "RUN_FINISHED"]
    );
}

#[tokio::test]
async fn connecting_returns_a_thread_with_its_state_and_artifacts() {
    let server = Served::answering(["never"]).await;
    server
        .run_of("counter", "r1", json!([user("u1", "count")]), json!({}))
        .await
        .end();

    let events = server.connect("counter").await;

    assert_eq!(
        types(&events),
        [
            "RUN_STARTED",
            "MESSAGES_SNAPSHOT",
            "STATE_SNAPSHOT",
            "RUN_FINISHED"
        ]
    );
    let held = events[1]["messages"].as_array().unwrap();
    assert_eq!(
        (&held[0]["id"], &held[1]["content"]),
        (&json!("u1"), &json!("Counted."))
    );
    assert_eq!(
        (&held[2]["role"], &held[2]["id"]),
        (&json!("activity"), &json!("artifact_sheet"))
    );
    assert_eq!(events[2]["snapshot"], json!({"counter": 2}));
}

#[tokio::test]
async fn a_background_run_is_seen_live_and_blocks_other_runs() {
    let gate = Gate::new();
    let model = ScriptedModel::new().reply(Reply::text("Later.").chunk("Lat").wait(&gate).chunk("er."));
    let server = Served::with(model, |server| server).await;
    let action = server.registry.get(&ActionType::AGENT.key("keeper")).unwrap();
    let keeper: std::sync::Arc<AgentAction> = downcast(action).unwrap();
    let mut connection = keeper.connect_in(AgentInit::session("t"), &Context::new());
    connection
        .send(AgentInput::from("work").detached())
        .await
        .unwrap();
    connection.output().await.unwrap();

    let refused = server.run("r1", json!([user("u1", "hi")])).await;
    let body = json!({"threadId": "t", "runId": "c", "protocolVersion": "1.0", "messages": []});
    let request = server.request("POST", "/agui/keeper/connect").json(&body);
    let watching = request.send().await.unwrap();
    gate.open();
    let watched = Answer {
        status: watching.status().as_u16(),
        body: watching.text().await.unwrap(),
    };
    let events = watched.events();

    assert_eq!(refused.error().1, "FAILED_PRECONDITION");
    // The message that the run works on is shown before it is on record.
    assert_eq!(types(&events)[..2], ["RUN_STARTED", "MESSAGES_SNAPSHOT"]);
    assert_eq!(events[1]["messages"][0]["content"], "work");
    assert_eq!(
        events
            .iter()
            .filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT")
            .count(),
        2
    );
    let whole = events
        .iter()
        .rfind(|event| event["type"] == "MESSAGES_SNAPSHOT")
        .unwrap();
    assert_eq!(whole["messages"][1]["content"], "Later.");
    assert_eq!(
        whole["messages"][1]["id"],
        first(&events, "TEXT_MESSAGE_START")["messageId"]
    );
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
}
