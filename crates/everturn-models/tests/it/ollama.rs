//! Ollama's own API.

use std::sync::Arc;

use everturn_ai::{FinishReason, ModelRequest, OutputConfig, ToolChoice, ToolDefinition};
use everturn_core::{Registry, Status};
use everturn_models::ollama::{Ollama, OllamaConfig};
use serde_json::{Value, json};

use crate::asking::{Asked, ask, messages, question, question_with};
use crate::server::{Reply, Server};

const MODEL: &str = "ollama/qwen3:8b";

fn plugin(server: &Server) -> Ollama {
    Ollama::new().base_url(server.url())
}

fn message_line(message: Value) -> Value {
    json!({ "model": "qwen3:8b", "message": message, "done": false })
}

fn done(reason: &str) -> Value {
    json!({
        "model": "qwen3:8b", "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": reason,
        "prompt_eval_count": 7, "eval_count": 5, "load_duration": 11,
    })
}

async fn answered(lines: &[Value]) -> Asked {
    let server = Server::replies([Reply::lines(lines).split(3)]).await;
    ask(plugin(&server), MODEL, question("Leeks?")).await
}

async fn sent(request: ModelRequest) -> Value {
    let server = Server::replies([Reply::lines(&[done("stop")])]).await;
    ask(plugin(&server), MODEL, request).await.result.unwrap();
    server.last_body()
}

#[tokio::test]
async fn a_request_has_the_form_of_the_wire() {
    let config = OllamaConfig {
        temperature: Some(0.0),
        max_output_tokens: Some(9),
        num_ctx: Some(16_384),
        think: Some("low".into()),
        keep_alive: Some("5m".into()),
        ..OllamaConfig::default()
    };
    let mut config = json!(config);
    config["mirostat"] = json!(1);
    let request = ModelRequest {
        tools: Some(Arc::from([ToolDefinition {
            name: "season".to_owned(),
            ..ToolDefinition::default()
        }])),
        output: Some(OutputConfig {
            schema: Some(json!({ "type": "object" })),
            constrained: Some(true),
            ..OutputConfig::default()
        }),
        config: Some(config),
        ..ModelRequest::new(messages(json!([
            { "role": "system", "content": [{ "text": "You are a chef." }] },
            { "role": "user", "content": [{ "text": "Leeks?" }, { "media": { "url": "data:image/png;base64,QUI=" } }] },
            { "role": "model", "content": [
                { "reasoning": "Hm." },
                { "reasoning": "Foreign.", "metadata": { "signedBy": "anthropic" } },
                { "toolRequest": { "name": "season", "ref": "1", "input": { "a": 1 } } },
            ] },
            { "role": "tool", "content": [{ "toolResponse": { "name": "season", "ref": "1", "output": ["leeks"] } }] },
        ])))
    };

    let expected = json!({
        "model": "qwen3:8b",
        "messages": [
            { "role": "system", "content": "You are a chef." },
            { "role": "user", "content": "Leeks?", "images": ["QUI="] },
            { "role": "assistant", "content": "", "thinking": "Hm.",
              "tool_calls": [{ "id": "1", "function": { "name": "season", "arguments": { "a": 1 } } }] },
            { "role": "tool", "tool_name": "season", "tool_call_id": "1", "content": "[\"leeks\"]" },
        ],
        "stream": true,
        "tools": [{ "type": "function", "function": {
            "name": "season", "description": "", "parameters": { "type": "object", "properties": {} },
        } }],
        "format": { "type": "object" },
        "think": "low",
        "keep_alive": "5m",
        "options": { "temperature": 0.0, "num_predict": 9, "num_ctx": 16384, "mirostat": 1 },
    });
    assert_eq!(sent(request).await, expected);
}

#[tokio::test]
async fn nothing_is_sent_that_was_not_set() {
    let sent = sent(question("Leeks?")).await;

    assert_eq!(
        sent,
        json!({ "model": "qwen3:8b", "messages": [{ "role": "user", "content": "Leeks?" }], "stream": true })
    );
}

#[tokio::test]
async fn a_model_that_may_call_no_tool_gets_none() {
    let request = ModelRequest {
        tools: Some(Arc::from([ToolDefinition::default()])),
        tool_choice: Some(ToolChoice::None),
        ..question("Leeks?")
    };

    assert_eq!(sent(request).await.get("tools"), None);
}

#[tokio::test]
async fn thinking_text_and_calls_become_parts() {
    let asked = answered(&[
        message_line(json!({ "thinking": "H" })),
        message_line(json!({ "thinking": "m." })),
        message_line(json!({ "content": "Grüße 🥕" })),
        message_line(json!({ "content": "", "tool_calls": [{ "id": "x", "function": { "name": "f", "arguments": { "a": 1 } } }] })),
        message_line(json!({ "tool_calls": [{ "function": { "name": "g" } }] })),
        done("stop"),
    ])
    .await;

    let mut parts = asked.parts();
    let made = parts[3]["toolRequest"]["ref"].take();
    assert!(uuid(&made), "{made}");
    let expected = json!([
        { "reasoning": "Hm." },
        { "text": "Grüße 🥕" },
        { "toolRequest": { "ref": "x", "name": "f", "input": { "a": 1 } } },
        { "toolRequest": { "ref": null, "name": "g", "input": {} } },
    ]);
    assert_eq!(parts, expected);
    assert_eq!(asked.streamed_text(), "Grüße 🥕");
    let usage = asked.result.unwrap().usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(7), Some(5)));
    assert_eq!(usage.custom.unwrap()["load_duration"], 11.into());
}

fn uuid(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 36)
}

#[tokio::test]
async fn an_answer_ends_with_its_last_line_and_its_reason() {
    let length = answered(&[message_line(json!({ "content": "a" })), done("length")])
        .await
        .result
        .unwrap();
    let cut = answered(&[message_line(json!({ "content": "a" }))])
        .await
        .result
        .unwrap_err();
    let failed = answered(&[
        message_line(json!({ "content": "a" })),
        json!({ "error": "model 'x' not found" }),
    ])
    .await
    .result
    .unwrap_err();
    let other = answered(&[json!({ "error": "out of memory" })])
        .await
        .result
        .unwrap_err();

    assert_eq!(length.finish_reason, Some(FinishReason::Length));
    assert_eq!(cut.status(), Status::Unavailable);
    assert_eq!(failed.status(), Status::NotFound);
    assert!(failed.message().contains("ollama pull"), "{failed}");
    assert_eq!(other.status(), Status::Internal);
}

#[tokio::test]
async fn a_page_instead_of_a_stream_is_explained() {
    let server = Server::replies([Reply::page("<html>Please log in</html>")]).await;

    let error = ask(plugin(&server), MODEL, question_with(json!({})))
        .await
        .result
        .unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.message().contains("Please log in"), "{error}");
}

#[tokio::test]
async fn models_are_listed_by_what_they_can_do() {
    let server = Server::start(
        |request| match (request.path.as_str(), request.body["model"].as_str()) {
            ("/api/tags", _) => Reply::json(
                &json!({ "models": [{ "name": "qwen3:8b" }, { "name": "nomic" }, { "name": "old-embed" }] }),
            ),
            ("/api/show", Some("qwen3:8b")) => {
                Reply::json(&json!({ "capabilities": ["completion", "tools"] }))
            }
            ("/api/show", Some("nomic")) => Reply::json(&json!({ "capabilities": ["embedding"] })),
            ("/api/show", _) => Reply::json(&json!({})),
            ("/api/embed", _) => Reply::json(&json!({ "embeddings": [[1.0]] })),
            _ => Reply::json(&json!({ "error": "not found" })).status(404),
        },
    )
    .await;
    let plugin = plugin(&server);
    let registry = Registry::new();
    registry.install(Arc::new(plugin.clone())).unwrap();

    let listed: Vec<String> = registry.list().await.unwrap().into_keys().collect();

    assert_eq!(plugin.chat_models().await.unwrap(), ["qwen3:8b"]);
    assert_eq!(
        listed,
        [
            "/embedder/ollama/nomic",
            "/embedder/ollama/old-embed",
            "/model/ollama/qwen3:8b"
        ]
    );
    let vectors = everturn_ai::embed(&registry, "ollama/nomic", ["a"])
        .await
        .unwrap();
    assert_eq!(vectors[0].embedding, [1.0]);
}

#[tokio::test]
async fn media_other_than_images_is_refused() {
    let media = json!({ "media": { "url": "data:application/pdf;base64,QUI=" } });
    let request = ModelRequest::new(messages(json!([{ "role": "user", "content": [media] }])));
    let server = Server::replies([]).await;

    let error = ask(plugin(&server), MODEL, request).await.result.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("application/pdf"), "{error}");
}
