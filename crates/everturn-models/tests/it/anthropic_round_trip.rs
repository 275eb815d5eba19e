//! Claude's own data is sent back unchanged, from a conversation that was stored in between.

use everturn_core::Status;
use everturn_models::anthropic::Anthropic;
use serde_json::{Value, json};

use crate::anthropic_server::{Answer, start_strict};
use crate::round_trip::{asked_and_thanked, refusal_of_change};

const MODEL: &str = "anthropic/claude-sonnet-5";

fn thinking(text: &str, signature: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": signature })
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "look", "input": { "month": "März" } })
}

#[tokio::test]
async fn thinking_survives_parallel_calls_several_rounds_and_a_store() {
    let server = start_strict([
        Answer::of([
            thinking("First\u{2028}I look.", "c2ln+/Zmlyc3Q="),
            json!({ "type": "redacted_thinking", "data": "cmVkYWN0ZWQ" }),
            json!({ "type": "text", "text": "Looking …" }),
            call("toolu_1"),
            call("toolu_2"),
        ]),
        Answer::of([thinking("", "b25seSBzaWduYXR1cmU="), call("toolu_3")]),
        Answer::of([
            thinking("Done.", "dGhpcmQ="),
            json!({ "type": "text", "text": "Leeks." }),
        ]),
        Answer::of([json!({ "type": "text", "text": "You are welcome." })]),
    ])
    .await;

    let plugin = Anthropic::new("key").base_url(server.url());
    let (first, second) = asked_and_thanked(plugin, MODEL).await;

    assert_eq!(first.text(), "Leeks.");
    assert_eq!(second.text(), "You are welcome.");
    let last = server.last_body();
    let messages = last["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    let (user, assistant) = ("user", "assistant");
    assert_eq!(roles, [user, assistant, user, assistant, user, assistant, user]);
    assert_eq!(messages[1]["content"][0]["signature"], "c2ln+/Zmlyc3Q=");
}

#[tokio::test]
async fn a_changed_signature_is_refused_by_the_server() {
    let server = start_strict([
        Answer::of([
            thinking("Hm.", "c2ln"),
            json!({ "type": "text", "text": "Soup." }),
        ]),
        Answer::of([json!({ "type": "text", "text": "unreached" })]),
    ])
    .await;

    let plugin = Anthropic::new("key").base_url(server.url());
    let error = refusal_of_change(plugin, MODEL, "c2ln", "c2lO").await;

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("cannot be modified"), "{error}");
    assert_eq!(error.details().unwrap()["requestId"], "req_body");
    assert_eq!(error.details().unwrap()["retryable"], false);
}
