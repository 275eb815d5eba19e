//! Decoding of Gemini's streams.

use everturn_ai::{FinishReason, ModelRequest, ModelResponse};
use everturn_core::Status;
use everturn_models::gemini::Gemini;
use serde_json::{Value, json};

use crate::asking::{Asked, ask, question};
use crate::gemini_server::Answer;
use crate::server::{Reply, Server, sse};

const MODEL: &str = "gemini/gemini-3-pro";

async fn ask_at(server: &Server, request: ModelRequest) -> Asked {
    ask(Gemini::new("key").base_url(server.url()), MODEL, request).await
}

async fn answered(events: &[Value]) -> Asked {
    let server = Server::replies([Reply::events(sse(events))]).await;
    ask_at(&server, question("Leeks?")).await
}

async fn parts_of(parts: impl Into<Vec<Value>>) -> Asked {
    answered(&Answer::of(parts).events()).await
}

fn response(asked: &Asked) -> &ModelResponse {
    asked.result.as_ref().unwrap()
}

fn signed(signature: &str) -> Value {
    json!({ "thoughtSignature": signature, "signedBy": "gemini" })
}

#[tokio::test]
async fn a_signature_closes_its_part_and_never_moves() {
    let asked = parts_of([
        json!({ "text": "Let me ", "thought": true }),
        json!({ "text": "see.", "thought": true }),
        json!({ "text": "Hel" }),
        json!({ "text": "" }),
        json!({ "text": "lo" }),
        json!({ "text": "!", "thoughtSignature": "YQ-_" }),
        json!({ "text": " Bye" }),
        json!({ "text": "", "thoughtSignature": "Yg==" }),
    ])
    .await;

    let expected = json!([
        { "reasoning": "Let me see." },
        { "text": "Hello" },
        { "text": "!", "metadata": signed("YQ-_") },
        { "text": " Bye" },
        { "text": "", "metadata": signed("Yg==") },
    ]);
    assert_eq!(asked.parts(), expected);
    assert_eq!(asked.streamed_text(), "Hello! Bye");
    assert_eq!(
        asked
            .chunks
            .iter()
            .map(|chunk| chunk.reasoning().into_owned())
            .collect::<String>(),
        "Let me see."
    );
}

#[tokio::test]
async fn calls_keep_their_ids_or_get_one_that_is_not_sent() {
    let asked = parts_of([
        json!({ "functionCall": { "id": "f1", "name": "look", "args": { "n": 1 } }, "thoughtSignature": "YQ==" }),
        json!({ "functionCall": { "name": "now" } }),
    ])
    .await;

    let parts = asked.parts();
    let first = json!({ "toolRequest": { "ref": "f1", "name": "look", "input": { "n": 1 } }, "metadata": signed("YQ==") });
    assert_eq!(parts[0], first);
    assert_eq!(parts[1]["toolRequest"]["input"], json!({}));
    assert_eq!(parts[1]["toolRequest"]["ref"].as_str().unwrap().len(), 36);
    assert_eq!(parts[1]["metadata"], json!({ "gemini": { "noId": true } }));
    assert_eq!(asked.streamed(), *parts.as_array().unwrap());
}

#[tokio::test]
async fn arguments_that_come_in_pieces_are_put_together() {
    let piece = |call: Value| json!({ "functionCall": call });
    let asked = parts_of([
        json!({ "functionCall": { "id": "f1", "name": "look", "willContinue": true }, "thoughtSignature": "YQ==" }),
        piece(json!({ "partialArgs": [{ "jsonPath": "$.what", "stringValue": "le", "willContinue": true }], "willContinue": true })),
        piece(json!({ "partialArgs": [{ "jsonPath": "$.what", "stringValue": "eks" }], "willContinue": true })),
        piece(json!({})),
    ])
    .await;

    let whole = json!({ "toolRequest": { "ref": "f1", "name": "look", "input": { "what": "leeks" } }, "metadata": signed("YQ==") });
    assert_eq!(asked.parts(), json!([whole]));
    let seen: Vec<Value> = asked
        .streamed()
        .iter()
        .map(|part| part["toolRequest"]["partial"].clone())
        .collect();
    assert_eq!(seen, [json!(true), json!(true), json!(true), Value::Null]);
}

#[tokio::test]
async fn media_code_and_the_unknown_are_kept_whole() {
    let asked = parts_of([
        json!({ "inlineData": { "mimeType": "image/png", "data": "QUI=" }, "thoughtSignature": "YQ==" }),
        json!({ "fileData": { "mimeType": "video/mp4", "fileUri": "https://x.test/v" } }),
        json!({ "executableCode": { "id": "c", "language": "PYTHON", "code": "1" }, "thoughtSignature": "Yg==" }),
        json!({ "codeExecutionResult": { "id": "c", "outcome": "OUTCOME_OK", "output": "1" } }),
        json!({ "toolCall": { "toolType": "GOOGLE_SEARCH_WEB" } }),
        json!({ "novel": { "n": 1 }, "thoughtSignature": "Yw==" }),
        json!({ "inlineData": { "mimeType": "image/png", "data": "QUI=" }, "thought": true }),
    ])
    .await;

    let expected = json!([
        { "media": { "contentType": "image/png", "url": "data:image/png;base64,QUI=" }, "metadata": signed("YQ==") },
        { "media": { "contentType": "video/mp4", "url": "https://x.test/v" } },
        { "custom": { "executableCode": { "id": "c", "language": "PYTHON", "code": "1" } }, "metadata": signed("Yg==") },
        { "custom": { "codeExecutionResult": { "id": "c", "outcome": "OUTCOME_OK", "output": "1" } } },
        { "custom": { "geminiToolCall": { "toolType": "GOOGLE_SEARCH_WEB" } } },
        { "custom": { "gemini": { "novel": { "n": 1 }, "thoughtSignature": "Yw==" } } },
        { "custom": { "gemini": { "inlineData": { "mimeType": "image/png", "data": "QUI=" }, "thought": true } } },
    ]);
    assert_eq!(asked.parts(), expected);
}

#[tokio::test]
async fn usage_grounding_and_other_provider_data_are_kept() {
    let mut events = Answer::of([json!({ "text": "Soup." })]).events();
    events[1]["candidates"][0]["groundingMetadata"] = json!({ "webSearchQueries": ["leeks"] });

    let asked = answered(&events).await;

    let response = response(&asked);
    let usage = response.usage.as_ref().unwrap();
    assert_eq!(
        (usage.input_tokens, usage.output_tokens, usage.thoughts_tokens),
        (Some(10), Some(12), Some(7))
    );
    let metadata = response.message.as_ref().unwrap().metadata().unwrap();
    assert_eq!(metadata["groundingMetadata"]["webSearchQueries"][0], "leeks");
    let custom = response.custom.as_ref().unwrap();
    assert_eq!(
        (&custom["responseId"], &custom["candidate"]["finishReason"]),
        (&json!("r1"), &json!("STOP"))
    );
}

#[tokio::test]
async fn the_finish_reason_is_reported() {
    let asked = answered(&Answer::of([json!({ "text": "So" })]).stopping("SAFETY").events()).await;
    assert_eq!(response(&asked).finish_reason, Some(FinishReason::Blocked));
    assert_eq!(response(&asked).finish_message.as_deref(), Some("SAFETY"));

    let mut events = Answer::of([]).stopping("MALFORMED_FUNCTION_CALL").events();
    events[0]["candidates"][0]["finishMessage"] = json!("Malformed function call: look(");
    let asked = answered(&events).await;
    assert_eq!(response(&asked).finish_reason, Some(FinishReason::Other));
    assert_eq!(
        response(&asked).finish_message.as_deref(),
        Some("Malformed function call: look(")
    );

    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" }, "usageMetadata": { "promptTokenCount": 3 } });
    let asked = answered(&[blocked]).await;
    assert_eq!(response(&asked).finish_reason, Some(FinishReason::Blocked));
    assert_eq!(
        response(&asked).finish_message.as_deref(),
        Some("PROHIBITED_CONTENT")
    );
    assert!(response(&asked).message.is_none());
    assert_eq!(response(&asked).usage.as_ref().unwrap().input_tokens, Some(3));
}

#[tokio::test]
async fn an_answer_that_is_to_be_continued_is() {
    let mut first = Answer::of([json!({ "text": "Leeks " })])
        .stopping("CONTINUATION")
        .events();
    first[1]["candidates"][0]["continuationToken"] = json!("dG9rZW4=");
    let second = Answer::of([json!({ "text": "and peas." })]).events();
    let server = Server::replies([Reply::events(sse(&first)), Reply::events(sse(&second))]).await;

    let asked = ask_at(&server, question("Leeks?")).await;

    assert_eq!(response(&asked).text(), "Leeks and peas.");
    assert_eq!(response(&asked).finish_reason, Some(FinishReason::Stop));
    assert_eq!(response(&asked).usage.as_ref().unwrap().output_tokens, Some(24));
    assert_eq!(server.last_body()["continuationToken"], "dG9rZW4=");
}

#[tokio::test]
async fn an_empty_stream_is_no_answer() {
    let asked = answered(&[]).await;

    let error = asked.result.unwrap_err();
    assert_eq!(error.status(), Status::Unavailable, "{error}");
}
