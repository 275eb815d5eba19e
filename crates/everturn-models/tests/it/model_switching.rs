//! One session whose model changes from turn to turn: every server accepts what it is sent, and gets its own
//! back.

use std::sync::Arc;

use everturn_agent::agent;
use everturn_agent::store::MemoryStore;
use everturn_ai::{Tool, ToolContext};
use everturn_core::Registry;
use everturn_models::openai::{Api, OpenAi};
use everturn_models::{Anthropic, Gemini};
use serde_json::{Value, json};

use crate::{anthropic_server, gemini_server, responses_server};

fn openai_turn(turn: u32) -> [responses_server::Answer; 2] {
    let (call, encrypted) = (format!("call_{turn}"), format!("Z0FBQUE{turn}+/="));
    let thought =
        |step: &str| responses_server::reasoning(&format!("rs_{turn}_{step}"), &encrypted, &["Hm.", "So."]);
    [
        responses_server::Answer::of([
            thought("a"),
            responses_server::call(&format!("fc_{turn}"), &call, "look", r#"{"where":"März"}"#),
        ]),
        responses_server::Answer::of([
            thought("b"),
            responses_server::message(&format!("msg_{turn}"), "OpenAI: leeks."),
        ]),
    ]
}

fn anthropic_turn() -> [anthropic_server::Answer; 2] {
    let thought = |signature: &str| json!({ "type": "thinking", "thinking": "Hm.", "signature": signature });
    [
        anthropic_server::Answer::of([
            thought("EqQB+/=="),
            json!({ "type": "redacted_thinking", "data": "EmwKAhgB" }),
            json!({ "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "where": "März" } }),
        ]),
        anthropic_server::Answer::of([
            thought("EqQC"),
            json!({ "type": "text", "text": "Anthropic: leeks." }),
        ]),
    ]
}

fn gemini_turn() -> [gemini_server::Answer; 2] {
    let call = json!({ "functionCall": { "name": "look", "args": { "where": "März" } }, "thoughtSignature": "-_8=" });
    [
        gemini_server::Answer::of([json!({ "text": "Hm.", "thought": true }), call]),
        gemini_server::Answer::of([
            json!({ "text": "Gemini: leeks." }),
            json!({ "text": "", "thoughtSignature": "Yg==" }),
        ]),
    ]
}

#[tokio::test]
async fn a_session_may_change_its_model_at_every_turn() {
    let turns = 2;
    let openai = responses_server::start_strict((1..=turns + 1).flat_map(openai_turn)).await;
    let anthropic = anthropic_server::start_strict((0..turns).flat_map(|_| anthropic_turn())).await;
    let gemini = gemini_server::start_strict((0..turns).flat_map(|_| gemini_turn())).await;
    let registry = Registry::new();
    let openai_plugin = OpenAi::new("key").base_url(openai.url()).api(Api::Responses);
    registry.install(Arc::new(openai_plugin)).unwrap();
    registry
        .install(Arc::new(Anthropic::new("key").base_url(anthropic.url())))
        .unwrap();
    registry
        .install(Arc::new(Gemini::new("key").base_url(gemini.url())))
        .unwrap();
    let store = MemoryStore::new();
    let order = [
        ("openai/gpt-test", "OpenAI: leeks."),
        ("anthropic/claude-sonnet-5", "Anthropic: leeks."),
        ("gemini/gemini-3-pro", "Gemini: leeks."),
        ("openai/gpt-test", "OpenAI: leeks."),
        ("gemini/gemini-3-pro", "Gemini: leeks."),
        ("anthropic/claude-sonnet-5", "Anthropic: leeks."),
        ("openai/gpt-test", "OpenAI: leeks."),
    ];

    for (turn, (model, expected)) in order.into_iter().enumerate() {
        let look = Tool::new("look", "Looks.", |_: Value, _: ToolContext| async {
            Ok(json!(["leeks"]))
        });
        let chef = agent(&registry.child(), "chef")
            .model(model)
            .system("You are a chef.")
            .tool(look)
            .store(store.clone())
            .define()
            .unwrap();

        let reply = chef.chat().resume("s").run("What is there?").await.unwrap();

        assert_eq!(reply.text(), expected, "turn {turn} with {model}");
    }

    assert_eq!(openai.requests().len(), 6);
    assert_eq!(anthropic.requests().len() + gemini.requests().len(), 8);
    // The request has this model's reasoning of earlier turns, and no other model's.
    let input = openai.last_body()["input"].take();
    let reasoning = input
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["type"] == "reasoning");
    assert_eq!(reasoning.count(), 5);
}
