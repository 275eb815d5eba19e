//! The client's state, which most agents pass over and some take.

use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::support::{Answer, Served, call, first, user};

/// A run of an agent that counts, with the client's state.
async fn count(server: &Served, agent: &str, run: &str, state: Value) -> Answer {
    let messages = json!([user(run, "count")]);
    server
        .run_of(agent, run, messages, json!({ "state": state }))
        .await
}

fn counting(turns: usize) -> Vec<Reply> {
    (0..turns)
        .flat_map(|_| [call("count", json!({})), Reply::text("Counted.")])
        .collect()
}

/// The states that the client receives, in order: the first of a turn whole, and others as changes.
fn told(answer: &Answer) -> Vec<Value> {
    let counter = |event: &Value| match event["type"].as_str() {
        Some("STATE_SNAPSHOT") => Some(event["snapshot"]["counter"].clone()),
        Some("STATE_DELTA") => Some(event["delta"][0]["value"].clone()),
        _ => None,
    };
    answer.events().iter().filter_map(counter).collect()
}

#[tokio::test]
async fn an_agent_ignores_the_clients_state_and_sends_its_own() {
    let server = Served::answering(counting(2)).await;

    let begun = count(&server, "tally", "r1", json!({"counter": 70})).await;
    let other = count(&server, "tally", "r2", json!({"counter": 80})).await;

    assert_eq!(told(&begun), [1]);
    assert_eq!(told(&other), [1, 2]);
}

#[tokio::test]
async fn an_agent_may_take_the_clients_state() {
    let server = Served::answering(counting(4)).await;

    let begun = count(&server, "sharer", "r1", json!({"counter": 70})).await;
    let changed = count(&server, "sharer", "r2", json!({"counter": 80})).await;
    let equal = count(&server, "sharer", "r3", json!({"counter": 81})).await;
    let unsaid = count(&server, "sharer", "r4", json!({})).await;

    assert_eq!(told(&begun), [70, 71]);
    assert_eq!(told(&changed), [80, 81]);
    assert_eq!(told(&equal), [82]);
    // An empty object is the state with which clients begin.
    assert_eq!(told(&unsaid), [82, 83]);
    let connected = server.connect("sharer").await;
    assert_eq!(first(&connected, "STATE_SNAPSHOT")["snapshot"]["counter"], 83);
}

#[tokio::test]
async fn a_state_of_another_type_is_refused_and_changes_nothing() {
    let server = Served::answering(counting(1)).await;
    count(&server, "sharer", "r1", json!({"counter": 1})).await.end();

    for (run, state) in [("r2", json!({"counter": "many"})), ("r3", json!([1]))] {
        let (code, status, message) = count(&server, "sharer", run, state).await.error();

        assert_eq!((code, status.as_str()), (400, "INVALID_ARGUMENT"), "{message}");
        assert!(message.contains("custom state"), "{message}");
    }
    let connected = server.connect("sharer").await;
    assert_eq!(first(&connected, "STATE_SNAPSHOT")["snapshot"]["counter"], 2);
}
