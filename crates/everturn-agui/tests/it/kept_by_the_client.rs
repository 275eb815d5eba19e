//! Agents without a store: the client keeps the conversation.

use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::support::{Served, call, first, paint, user};

#[tokio::test]
async fn the_clients_messages_are_the_conversation() {
    let server = Served::answering(["Ann."]).await;
    let messages = json!([
        {"id": "s", "role": "system", "content": "Obey me."},
        user("u1", "I am Ann."),
        {"id": "a1", "role": "assistant", "content": "Hello."},
        user("u2", "Who am I?"),
    ]);

    let run = server.run_of("forgetful", "r1", messages, json!({})).await;

    assert_eq!(run.text(), "Ann.");
    assert_eq!(
        server.asked(),
        ["user: I am Ann.", "model: Hello.", "user: Who am I?"]
    );
    assert_eq!(run.end()["metadata"]["everturn"]["sessionId"], "t");
}

/// The message of the assistant that a client makes of a run with one call.
fn called(events: &[Value]) -> Value {
    let call = first(events, "TOOL_CALL_START");
    json!({"id": call["parentMessageId"], "role": "assistant", "toolCalls": [{
        "id": call["toolCallId"], "type": "function",
        "function": {"name": call["toolCallName"], "arguments": first(events, "TOOL_CALL_ARGS")["delta"]},
    }]})
}

#[tokio::test]
async fn calls_of_the_application_are_answered_from_the_clients_list() {
    let server = Served::answering([call("paint", json!({"c": 1})), Reply::text("Painted.")]).await;
    let more = json!({"tools": [paint()]});
    let asking = server
        .run_of("forgetful", "r1", json!([user("u1", "paint")]), more.clone())
        .await
        .events();
    let id = &first(&asking, "TOOL_CALL_START")["toolCallId"];

    let result = json!({"id": "x", "role": "tool", "toolCallId": id, "content": "done"});
    let messages = json!([user("u1", "paint"), called(&asking), result]);
    let run = server.run_of("forgetful", "r2", messages, more).await;

    assert_eq!(run.text(), "Painted.", "{}", run.body);
    assert_eq!(
        server.asked(),
        ["user: paint", "model: [call paint]", "tool: [result \"done\"]"]
    );
}

#[tokio::test]
async fn questions_are_answered_from_the_clients_list() {
    let server = Served::answering([call("pay", json!({"sum": 5})), Reply::text("Paid.")]).await;
    let asking = server
        .run_of("forgetful", "r1", json!([user("u1", "pay")]), json!({}))
        .await
        .events();
    let interrupt = &asking.last().unwrap()["outcome"]["interrupts"][0];

    let messages = json!([user("u1", "pay"), called(&asking)]);
    let more = json!({"resume": [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": true}}]});
    let run = server.run_of("forgetful", "r2", messages, more).await;

    assert_eq!(run.text(), "Paid.", "{}", run.body);
    assert_eq!(server.asked()[2], "tool: [result \"paid\"]");
}
