//! What Claude gave comes back to it unchanged, from a conversation that was stored in between.

use std::sync::Arc;

use everturn_ai::{Generate, Message, ModelRequest, Tool, ToolContext};
use everturn_core::{Registry, Status};
use everturn_models::anthropic::Anthropic;
use serde_json::{Value, json};

use crate::anthropic_server::{Answer, start_strict};
use crate::asking::ask;
use crate::server::Server;

const MODEL: &str = "anthropic/claude-sonnet-5";

fn registry(server: &Server) -> Registry {
    let registry = Registry::new();
    registry
        .install(Arc::new(Anthropic::new("key").base_url(server.url())))
        .unwrap();
    registry
}

fn season() -> Tool {
    Tool::new(
        "in_season",
        "What is in season.",
        |_: Value, _: ToolContext| async { Ok(json!(["leeks"])) },
    )
}

fn thinking(text: &str, signature: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": signature })
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "in_season", "input": { "month": "März" } })
}

/// A conversation as it comes back from a store.
fn stored(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let text = serde_json::to_string(&messages.into_iter().collect::<Vec<_>>()).unwrap();
    serde_json::from_str(&text).unwrap()
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
    let registry = registry(&server);

    let first = Generate::new(&registry)
        .model(MODEL)
        .system("You are a chef.")
        .prompt("What is in season?")
        .tool(season())
        .await
        .unwrap();
    let history = stored(first.messages().iter().cloned());
    let second = Generate::new(&registry)
        .model(MODEL)
        .messages(history)
        .prompt("Thank you.")
        .tool(season())
        .await
        .unwrap();

    assert_eq!(first.text(), "Leeks.");
    assert_eq!(second.text(), "You are welcome.");
    let last = server.last_body();
    let roles: Vec<&str> = last["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
            "user"
        ]
    );
    assert_eq!(last["messages"][1]["content"][0]["signature"], "c2ln+/Zmlyc3Q=");
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
    let question = Message::user("Leeks?");
    let answer = ask(plugin.clone(), MODEL, ModelRequest::new(question.clone()))
        .await
        .result
        .unwrap();
    let answer = serde_json::to_string(&answer.message).unwrap();
    let forged: Message = serde_json::from_str(&answer.replace("c2ln", "c2lO")).unwrap();

    let request = ModelRequest::new([question, forged, Message::user("And?")]);
    let error = ask(plugin, MODEL, request).await.result.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("cannot be modified"), "{error}");
    assert_eq!(error.details().unwrap()["requestId"], "req_body");
    assert_eq!(error.details().unwrap()["retryable"], false);
}
