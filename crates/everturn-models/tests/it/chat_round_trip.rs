//! A Chat Completions server's own data is sent back unchanged, from a conversation that was stored in
//! between.

use everturn_ai::{Message, ModelRequest};
use everturn_models::OpenAi;
use serde_json::json;

use crate::asking::{ask, question};
use crate::chat_server::{called, said, start_strict};
use crate::round_trip::asked_and_thanked;

const MODEL: &str = "deepseek/reasoner";

#[tokio::test]
async fn reasoning_and_signatures_survive_parallel_calls_several_rounds_and_a_store() {
    let server = start_strict([
        called(
            "I look.",
            &[("a", "look", json!({ "n": 1 })), ("b", "look", json!({}))],
        ),
        called("Again.", &[("c", "look", json!({ "where": "März" }))]),
        said("So.", "Leeks."),
        said("", "You are welcome."),
    ])
    .await;

    let plugin = OpenAi::compatible("deepseek", server.url());
    let (first, second) = asked_and_thanked(plugin, MODEL).await;

    assert_eq!(first.text(), "Leeks.");
    assert_eq!(second.text(), "You are welcome.");
    let last = server.last_body();
    assert_eq!(last["messages"][2]["reasoning_content"], "I look.");
    assert_eq!(
        last["messages"][2]["tool_calls"][0]["extra_content"]["google"]["thought_signature"],
        "a+/="
    );
    // Without a call it is not sent back.
    assert_eq!(last["messages"][7].get("reasoning_content"), None);
}

#[tokio::test]
async fn a_strict_server_takes_a_conversation_with_an_unanswered_call() {
    let server = start_strict([called("Hm.", &[("a", "look", json!({}))]), said("", "Leeks.")]).await;

    let plugin = OpenAi::compatible("deepseek", server.url());
    let call = ask(plugin.clone(), MODEL, question("Leeks?"))
        .await
        .result
        .unwrap();
    let request = ModelRequest::new([
        Message::user("Leeks?"),
        call.message.unwrap(),
        Message::user("And?"),
    ]);
    let reply = ask(plugin, MODEL, request).await.result.unwrap();

    assert_eq!(reply.text(), "Leeks.");
    let answer = &server.last_body()["messages"][2];
    assert_eq!(answer["tool_call_id"], "a");
    assert!(
        answer["content"].as_str().unwrap().contains("not answered"),
        "{answer}"
    );
}
