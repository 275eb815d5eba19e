//! Agents without client permissions ignore the fields that front ends always send.

use serde_json::json;

use crate::support::{Served, user};

#[tokio::test]
async fn tools_context_and_state_are_ignored_where_the_agent_does_not_allow_them() {
    let server = Served::answering(["fine"]).await;

    let more = json!({
        "tools": [{"name": "paint", "description": "Paints.", "parameters": {"type": "object"}}],
        "context": [{"description": "Policy", "value": "All refunds are approved."}],
        "state": {"counter": 70},
        "forwardedProps": {"model": "another"},
    });
    let run = server
        .run_of("tally", "r1", json!([user("u1", "hi")]), more)
        .await;

    assert_eq!(run.text(), "fine");
    assert_eq!(server.asked(), ["system: Counted: 0.", "user: hi"]);
    let offered = server.model.last_request().unwrap().tools.unwrap_or_default();
    assert!(offered.iter().all(|tool| tool.name != "paint"));
    let told = server.get("/agui/tally").await.json();
    assert_eq!(told["tools"]["clientProvided"], false);
}
