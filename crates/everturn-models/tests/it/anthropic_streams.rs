//! Decoding of Anthropic's streams.

use everturn_ai::{FinishReason, ModelRequest, ModelResponse};
use everturn_models::anthropic::Anthropic;
use serde_json::{Value, json};

use crate::anthropic_server::{Answer, start, start_strict};
use crate::asking::{Asked, ask, question, question_with};
use crate::server::{Reply, Server, named_sse};

const MODEL: &str = "anthropic/claude-sonnet-5";

async fn ask_at(server: &Server, request: ModelRequest) -> Asked {
    ask(Anthropic::new("key").base_url(server.url()), MODEL, request).await
}

async fn answered(events: &[Value]) -> Asked {
    let reply = Reply::events(named_sse(events)).header("request-id", "req_01");
    let server = Server::replies([reply]).await;
    ask_at(&server, question("Leeks?")).await
}

fn response(asked: &Asked) -> &ModelResponse {
    asked.result.as_ref().unwrap()
}

#[tokio::test]
async fn every_kind_of_block_becomes_its_part_in_order() {
    let search = json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "leeks" } });
    let found = json!({
        "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
        "content": [{ "type": "web_search_result", "url": "https://x.test", "encrypted_content": "RW5j" }],
    });
    let citation =
        json!({ "type": "web_search_result_location", "encrypted_index": "RW8=", "cited_text": "leek" });
    let answer = Answer::of([
        json!({ "type": "thinking", "thinking": "Let me see … 🥕", "signature": "EqoBCkgIAR==" }),
        json!({ "type": "redacted_thinking", "data": "EmwKAhgBEgy3va3p" }),
        search.clone(),
        found.clone(),
        json!({ "type": "text", "text": "Leeks are in season.", "citations": [citation] }),
        json!({ "type": "from_the_future", "n": 1.5 }),
        json!({ "type": "tool_use", "id": "toolu_1", "name": "stock", "input": { "what": ["leek"], "n": 2 },
                "caller": { "type": "direct" } }),
    ]);

    let asked = answered(&answer.events()).await;

    let expected = json!([
        { "reasoning": "Let me see … 🥕", "metadata": { "thoughtSignature": "EqoBCkgIAR==", "signedBy": "anthropic" } },
        { "custom": { "redactedThinking": "EmwKAhgBEgy3va3p" } },
        { "custom": { "anthropic": search } },
        { "custom": { "anthropic": found } },
        { "text": "Leeks are in season.", "metadata": { "citations": [citation] } },
        { "custom": { "anthropic": { "type": "from_the_future", "n": 1.5 } } },
        { "toolRequest": { "ref": "toolu_1", "name": "stock", "input": { "what": ["leek"], "n": 2 } },
          "metadata": { "anthropic": { "caller": { "type": "direct" } } } },
    ]);
    assert_eq!(asked.parts(), expected);
    assert_eq!(asked.streamed_text(), "Leeks are in season.");
    let thought: String = asked
        .chunks
        .iter()
        .map(|chunk| chunk.reasoning().into_owned())
        .collect();
    assert_eq!(thought, "Let me see … 🥕");
}

#[tokio::test]
async fn arguments_are_streamed_as_they_grow() {
    let answer = Answer::of([
        json!({ "type": "tool_use", "id": "toolu_1", "name": "stock", "input": { "what": "leeks" } }),
        json!({ "type": "tool_use", "id": "toolu_2", "name": "now", "input": {} }),
    ]);

    let asked = answered(&answer.events()).await;

    let calls: Vec<&everturn_ai::ToolRequest> = asked
        .chunks
        .iter()
        .flat_map(everturn_ai::ModelResponseChunk::tool_requests)
        .collect();
    let seen: Vec<(bool, Option<&str>)> = calls
        .iter()
        .filter(|call| call.name == "stock")
        .map(|call| {
            (
                call.partial,
                call.input.as_ref().and_then(|input| input["what"].as_str()),
            )
        })
        .collect();
    assert_eq!(seen.first(), Some(&(true, None)));
    assert!(seen.contains(&(true, Some("lee"))), "{seen:?}");
    assert_eq!(seen.last(), Some(&(false, Some("leeks"))));
    assert_eq!(calls.last().unwrap().input, Some(json!({})));
    assert_eq!(asked.parts().as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn thinking_that_is_not_shown_is_kept_for_its_signature() {
    let answer = Answer::of([
        json!({ "type": "thinking", "thinking": "", "signature": "c2ln" }),
        json!({ "type": "text", "text": "Soup." }),
    ]);

    let asked = answered(&answer.events()).await;

    let hidden =
        json!({ "reasoning": "", "metadata": { "thoughtSignature": "c2ln", "signedBy": "anthropic" } });
    assert_eq!(asked.parts()[0], hidden);
    assert!(asked.streamed().contains(&hidden));
}

#[tokio::test]
async fn usage_and_other_provider_data_are_kept() {
    let asked = answered(&Answer::of([json!({ "type": "text", "text": "Soup." })]).events()).await;

    let response = response(&asked);
    let usage = response.usage.as_ref().unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(10), Some(9)));
    assert_eq!(usage.cached_content_tokens, Some(2));
    let custom = response.custom.as_ref().unwrap();
    assert_eq!(custom["id"], "msg_01");
    assert_eq!(custom["request_id"], "req_01");
    assert_eq!(custom["stop_reason"], "end_turn");
    assert!(custom.get("content").is_none());
}

#[tokio::test]
async fn a_refusal_is_blocked_and_explained() {
    let mut events = Answer::of([json!({ "type": "text", "text": "I" })]).events();
    let last = events.len() - 2;
    events[last]["delta"] = json!({
        "stop_reason": "refusal", "stop_details": { "category": "cyber", "explanation": "Not that." },
    });

    let asked = answered(&events).await;

    assert_eq!(response(&asked).finish_reason, Some(FinishReason::Blocked));
    assert_eq!(response(&asked).finish_message.as_deref(), Some("Not that."));
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_not_a_call() {
    let delta = |text: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": text });
        json!({ "type": "content_block_delta", "index": 0, "delta": delta })
    };
    let asked = answered(&[
        start(),
        json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "tool_use", "id": "t", "name": "stock", "input": {} } }),
        delta("{\"what\": \"le"),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "max_tokens" }, "usage": { "output_tokens": 9 } }),
        json!({ "type": "message_stop" }),
    ])
    .await;

    assert_eq!(asked.parts(), json!([]));
    assert_eq!(response(&asked).finish_reason, Some(FinishReason::Length));
    let message = response(&asked).finish_message.as_deref().unwrap();
    assert!(message.contains("'stock'"), "{message}");
}

#[tokio::test]
async fn servers_that_are_almost_compatible_are_understood() {
    let asked = answered(&[
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 4, "output_tokens": 0 } } }),
        json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "tool_use", "id": "t", "name": "now" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "content_block_start", "index": 1,
                "content_block": { "type": "tool_use", "id": "u", "name": "stock", "input": { "n": 1 } } }),
        json!({ "type": "content_block_stop", "index": 1 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
        json!({ "type": "message_stop" }),
    ])
    .await;

    assert_eq!(asked.parts()[0]["toolRequest"]["input"], json!({}));
    assert_eq!(asked.parts()[1]["toolRequest"]["input"], json!({ "n": 1 }));
    assert_eq!(response(&asked).usage.as_ref().unwrap().input_tokens, Some(4));
}

#[tokio::test]
async fn an_answer_that_pauses_is_sent_back_and_continued() {
    let search =
        json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": { "query": "leeks" } });
    let server = start_strict([
        Answer::of([
            json!({ "type": "thinking", "thinking": "Hm.", "signature": "YQ==" }),
            search.clone(),
        ])
        .stopping("pause_turn"),
        Answer::of([json!({ "type": "text", "text": "Found." })]),
    ])
    .await;

    let asked = ask_at(
        &server,
        question_with(json!({ "tools": [{ "type": "web_search_20260318", "name": "web_search" }] })),
    )
    .await;

    let parts = asked.parts();
    assert_eq!(parts[1], json!({ "custom": { "anthropic": search } }));
    assert_eq!(parts[2], json!({ "text": "Found." }));
    let response = response(&asked);
    assert_eq!(response.finish_reason, Some(FinishReason::Stop));
    assert_eq!(response.usage.as_ref().unwrap().output_tokens, Some(18));
    let sent_back = &server.last_body()["messages"][1];
    assert_eq!(sent_back["role"], "assistant");
    assert_eq!(sent_back["content"][1], search);
}

#[tokio::test]
async fn pauses_come_to_an_end() {
    let pause = || Answer::of([json!({ "type": "text", "text": "Still …" })]).stopping("pause_turn");
    let server = start_strict((0..9).map(|_| pause())).await;

    let asked = ask_at(&server, question("Leeks?")).await;

    assert_eq!(server.requests().len(), 6);
    assert_eq!(response(&asked).finish_reason, Some(FinishReason::Other));
    assert_eq!(response(&asked).finish_message.as_deref(), Some("pause_turn"));
}
