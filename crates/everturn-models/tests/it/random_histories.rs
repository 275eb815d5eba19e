//! The request of any conversation, with models of any provider, is accepted.

use std::sync::Arc;

use everturn_ai::{ModelRequest, ToolDefinition};
use everturn_core::Result;
use everturn_models::{Anthropic, Gemini, OpenAi};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::asking::{ask, messages};
use crate::server::{Reply, Server, named_sse, sse};
use crate::{anthropic_rules, anthropic_server, chat_rules, chat_server, gemini_rules, gemini_server};

/// A part of a model's message, without calls.
fn any_content() -> impl Strategy<Value = Value> {
    select(vec![
        json!({ "text": "Soup." }),
        json!({ "text": "" }),
        json!({ "text": "  \n" }),
        json!({ "text": "Signed.", "metadata": { "thoughtSignature": "Zw==", "signedBy": "gemini" } }),
        json!({ "text": "", "metadata": { "thoughtSignature": "Zw==", "signedBy": "gemini" } }),
        json!({ "reasoning": "Claude's.", "metadata": { "thoughtSignature": "YQ==", "signedBy": "anthropic" } }),
        json!({ "reasoning": "", "metadata": { "thoughtSignature": "YQ==", "signedBy": "anthropic" } }),
        json!({ "reasoning": "Gemini's.", "metadata": { "thoughtSignature": "Zw==", "signedBy": "gemini" } }),
        json!({ "reasoning": "OpenAI's.", "metadata": { "thoughtSignature": "bw==", "signedBy": "openai" } }),
        json!({ "reasoning": "Nobody's." }),
        json!({ "custom": { "redactedThinking": "ZGF0YQ==" } }),
        json!({ "custom": { "executableCode": { "language": "PYTHON", "code": "1" } } }),
        json!({ "custom": { "openai": { "type": "web_search_call" } } }),
        json!({ "data": { "n": 1 } }),
        json!({ "media": { "url": "data:image/png;base64,QUI=" } }),
        json!({ "novelty": 1 }),
    ])
}

/// A part of a user's message.
fn asked() -> impl Strategy<Value = Value> {
    select(vec![
        json!({ "text": "Leeks?" }),
        json!({ "text": "" }),
        json!({ "media": { "url": "https://x.test/cat.png" } }),
        json!({ "media": { "url": "data:application/pdf;base64,QUI=" } }),
        json!({ "data": [1, 2] }),
    ])
}

/// How providers name a call and what they keep with it; `N` stands for its number in the message.
fn call() -> impl Strategy<Value = (Value, Value)> {
    let names = select(vec![
        json!("toolu_N"),
        json!("call:N"),
        json!("call_N"),
        json!("ü N"),
        Value::Null,
    ]);
    let kept = select(vec![
        Value::Null,
        json!({ "gemini": { "noId": true } }),
        json!({ "thoughtSignature": "YQ==", "signedBy": "anthropic" }),
        json!({ "openai": { "id": "fc_1" }, "thoughtSignature": "bw==", "signedBy": "openai" }),
        json!({ "anthropic": { "caller": { "type": "direct" } } }),
    ]);
    (names, kept)
}

/// A tool's answer without its name and reference.
fn answer() -> impl Strategy<Value = Value> {
    select(vec![
        json!({ "output": "yes" }),
        json!({ "output": { "error": "gone" } }),
        json!({ "output": [1] }),
        json!({ "output": null }),
        json!({}),
        json!({ "output": "seen", "content": [{ "media": { "url": "data:image/png;base64,QUI=" } }, { "text": "a cat" }] }),
    ])
}

/// The messages of one round: text and calls of the model, and the answers of the tools.
fn round() -> impl Strategy<Value = Vec<Value>> {
    let calls = prop::collection::vec((call(), answer()), 0..4);
    (prop::collection::vec(any_content(), 0..4), calls, any::<bool>()).prop_map(
        |(mut content, calls, backwards)| {
            let mut answers = Vec::new();
            for (number, ((reference, kept), mut answer)) in calls.into_iter().enumerate() {
                let reference = reference
                    .as_str()
                    .map(|name| name.replace('N', &number.to_string()));
                let (name, input) = if number == 2 {
                    ("shout", json!("hi"))
                } else {
                    ("look", json!({ "n": number }))
                };
                let mut part = json!({ "toolRequest": { "name": name, "input": input } });
                if let Some(reference) = &reference {
                    part["toolRequest"]["ref"] = json!(reference);
                    answer["ref"] = json!(reference);
                }
                if !kept.is_null() {
                    part["metadata"] = kept;
                }
                answer["name"] = json!(name);
                answers.push(json!({ "toolResponse": answer }));
                content.push(part);
            }
            if backwards {
                answers.reverse();
            }
            let mut round = vec![json!({ "role": "model", "content": content })];
            if !answers.is_empty() {
                round.push(json!({ "role": "tool", "content": answers }));
            }
            round
        },
    )
}

fn turn() -> impl Strategy<Value = Vec<Value>> {
    let user = prop::collection::vec(asked(), 0..3)
        .prop_map(|content| json!({ "role": "user", "content": content }));
    let system = select(vec![
        None,
        Some(json!({ "role": "system", "content": [{ "text": "Be brief." }] })),
    ]);
    (user, system, prop::collection::vec(round(), 0..4)).prop_map(|(user, system, rounds)| {
        let mut turn = vec![user];
        turn.extend(system);
        turn.extend(rounds.into_iter().flatten());
        turn
    })
}

/// A conversation that begins with a question or a greeting, and ends with a question or the answers of
/// tools.
fn history() -> impl Strategy<Value = Value> {
    let question = || json!({ "role": "user", "content": [{ "text": "Leeks?" }] });
    let greeting = json!({ "role": "model", "content": [{ "text": "Hello!" }] });
    let beginning = select(vec![question(), greeting]);
    let turns = prop::collection::vec(turn(), 0..4);
    (beginning, turns, any::<bool>()).prop_map(move |(beginning, turns, ends_in_turn)| {
        let mut history = vec![beginning];
        history.extend(turns.into_iter().flatten());
        let is_answered = history.last().is_some_and(|last| last["role"] == "tool");
        if !(ends_in_turn && is_answered) {
            history.push(question());
        }
        history.into()
    })
}

/// A request with tools that take an object, a text, and one of several objects.
fn request(history: Value) -> ModelRequest {
    let tool = |name: &str, schema: Value| ToolDefinition {
        name: name.to_owned(),
        input_schema: Some(schema),
        ..ToolDefinition::default()
    };
    let choice = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    ModelRequest {
        tools: Some(Arc::from([
            tool("look", json!({ "properties": { "n": { "type": "integer" } } })),
            tool("shout", json!({ "type": "string" })),
            tool("9/choose", json!({ "oneOf": [choice, choice] })),
        ])),
        ..ModelRequest::new(messages(history))
    }
}

async fn accepted_by_chat(history: Value) -> Result<()> {
    let answer = chat_server::streamed(&chat_server::said("", "Yes."));
    let server =
        Server::start(
            move |request| match chat_rules::check(request, &chat_rules::Given::default()) {
                Ok(()) => Reply::events(answer.clone()),
                Err(refusal) => Reply::json(&chat_server::error(&refusal)).status(400),
            },
        )
        .await;
    let plugin = OpenAi::compatible("strict", server.url());
    ask(plugin, "strict/m", request(history)).await.result.map(drop)
}

async fn accepted_by_anthropic(history: Value) -> Result<()> {
    let mut given = anthropic_rules::Given::default();
    for block in [
        json!({ "type": "thinking", "thinking": "Claude's.", "signature": "YQ==" }),
        json!({ "type": "thinking", "thinking": "", "signature": "YQ==" }),
        json!({ "type": "redacted_thinking", "data": "ZGF0YQ==" }),
    ] {
        given.add(&[block], false);
    }
    let answer =
        named_sse(&anthropic_server::Answer::of([json!({ "type": "text", "text": "Yes." })]).events());
    let server = Server::start(move |request| match anthropic_rules::check(request, &given) {
        Ok(()) => Reply::events(answer.clone()),
        Err(refusal) => Reply::json(&anthropic_server::error("invalid_request_error", &refusal)).status(400),
    })
    .await;
    let plugin = Anthropic::new("key").base_url(server.url());
    ask(plugin, "anthropic/claude-sonnet-5", request(history))
        .await
        .result
        .map(drop)
}

async fn accepted_by_gemini(history: Value) -> Result<()> {
    let mut given = gemini_rules::Given::default();
    given.add(&[
        json!({ "text": "Signed.", "thoughtSignature": "Zw==" }),
        json!({ "text": "", "thoughtSignature": "Zw==" }),
        json!({ "text": "Gemini's.", "thought": true, "thoughtSignature": "Zw==" }),
    ]);
    let answer = sse(&gemini_server::Answer::of([json!({ "text": "Yes." })]).events());
    let server = Server::start(move |request| match gemini_rules::check(request, &given) {
        Ok(()) => Reply::events(answer.clone()),
        Err(refusal) => Reply::json(&gemini_server::error(400, "INVALID_ARGUMENT", &refusal)).status(400),
    })
    .await;
    let plugin = Gemini::new("key").base_url(server.url());
    ask(plugin, "gemini/gemini-3-pro", request(history))
        .await
        .result
        .map(drop)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_conversation_is_accepted(history in history()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let anthropic = accepted_by_anthropic(history.clone()).await;
            prop_assert!(anthropic.is_ok(), "{:?}\n{history}", anthropic);
            let gemini = accepted_by_gemini(history.clone()).await;
            prop_assert!(gemini.is_ok(), "{:?}\n{history}", gemini);
            let chat = accepted_by_chat(history.clone()).await;
            prop_assert!(chat.is_ok(), "{:?}\n{history}", chat);
            Ok(())
        })?;
    }
}
