//! OpenAI's Responses API.

use std::sync::Arc;

use everturn_ai::{
    EmbedRequest, FinishReason, Message, ModelRequest, OutputConfig, Part, ToolChoice, ToolDefinition,
    embed_with,
};
use everturn_core::{Registry, Status};
use everturn_models::openai::{Api, OpenAi, OpenAiConfig};
use serde_json::{Value, json};

use crate::asking::{Asked, ask, messages, question, question_with};
use crate::responses_server::{Answer, call, message, reasoning, start_strict};
use crate::round_trip::{asked_and_thanked, refusal_of_change};
use crate::server::{Reply, Request, Server, named_sse};

const MODEL: &str = "openai/gpt-test";

fn plugin(server: &Server) -> OpenAi {
    OpenAi::new("sk-secret")
        .base_url(server.url())
        .api(Api::Responses)
}

async fn answered(answer: Answer) -> Asked {
    let server = Server::replies([answer.reply()]).await;
    ask(plugin(&server), MODEL, question("Leeks?")).await
}

async fn sent(request: ModelRequest) -> Request {
    let server = Server::replies([Answer::of([message("msg_1", "Soup.")]).reply()]).await;
    ask(plugin(&server), MODEL, request).await.result.unwrap();
    server.requests().remove(0)
}

#[tokio::test]
async fn a_request_has_the_form_of_the_wire() {
    let tool = ToolDefinition {
        name: "shop/buy".to_owned(),
        description: "Buys it.".to_owned(),
        input_schema: Some(json!({ "type": "object" })),
        ..ToolDefinition::default()
    };
    let request = ModelRequest {
        tools: Some(Arc::from([tool])),
        tool_choice: Some(ToolChoice::Required),
        config: Some(json!({
            "maxOutputTokens": 500, "topP": 0.5, "temperature": 0, "metadata": { "kitchen": "1" },
            "tools": [{ "type": "web_search" }], "include": ["web_search_call.results"], "verbosity": "low",
        })),
        ..ModelRequest::new(messages(json!([
            { "role": "system", "content": [{ "text": "You are a chef." }] },
            { "role": "system", "content": [{ "text": "Be brief." }] },
            { "role": "user", "content": [
                { "text": "What is this?" },
                { "media": { "url": "data:image/png;base64,QUI=" }, "metadata": { "detail": "low" } },
                { "media": { "url": "https://a/menu.pdf", "contentType": "application/pdf" } },
                { "data": { "a": 1 } },
            ] },
            { "role": "system", "content": [{ "text": "Now in French." }] },
        ])))
    };

    let sent = sent(request).await;

    assert_eq!(
        (sent.method.as_str(), sent.path.as_str()),
        ("POST", "/v1/responses")
    );
    assert_eq!(sent.headers["authorization"], "Bearer sk-secret");
    assert_eq!(sent.headers["accept-encoding"], "gzip");
    let expected = json!({
        "model": "gpt-test",
        "instructions": "You are a chef.\n\nBe brief.",
        "input": [
            { "type": "message", "role": "user", "content": [
                { "type": "input_text", "text": "What is this?" },
                { "type": "input_image", "image_url": "data:image/png;base64,QUI=", "detail": "low" },
                { "type": "input_file", "file_url": "https://a/menu.pdf" },
                { "type": "input_text", "text": "{\"a\":1}" },
            ] },
            { "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": "Now in French." }] },
        ],
        "stream": true,
        "store": false,
        "include": ["reasoning.encrypted_content", "web_search_call.results"],
        "tools": [
            {
                "type": "function", "name": "shop_buy", "description": "Buys it.",
                "parameters": { "type": "object" }, "strict": false,
            },
            { "type": "web_search" },
        ],
        "tool_choice": "required",
        "text": { "verbosity": "low" },
        "max_output_tokens": 500,
        "top_p": 0.5,
        "temperature": 0,
        "metadata": { "kitchen": "1" },
    });
    assert_eq!(sent.body, expected);
}

#[tokio::test]
async fn typed_settings_reach_the_wire_under_its_names() {
    let config = OpenAiConfig {
        reasoning_effort: Some("low".to_owned()),
        prompt_cache_key: Some("kitchen".to_owned()),
        version: Some("gpt-test-2026-01-01".to_owned()),
        api_key: Some("sk-other".into()),
        ..OpenAiConfig::default()
    };

    let sent = sent(question_with(json!(config))).await;

    assert_eq!(sent.headers["authorization"], "Bearer sk-other");
    assert_eq!(
        sent.body["reasoning"],
        json!({ "effort": "low", "summary": "auto" })
    );
    assert_eq!(sent.body["prompt_cache_key"], "kitchen");
    assert_eq!(sent.body["model"], "gpt-test-2026-01-01");
    assert!(!sent.body.to_string().contains("sk-other"));
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused_before_anything_is_sent() {
    for config in [
        json!({ "input": [] }),
        json!({ "stopSequences": ["END"] }),
        json!({ "n": 2 }),
    ] {
        let server = Server::replies([]).await;

        let error = ask(plugin(&server), MODEL, question_with(config))
            .await
            .result
            .unwrap_err();

        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(server.requests().is_empty());
    }
}

#[tokio::test]
async fn a_schema_is_enforced_strictly_where_it_can_be() {
    let output = |schema: Value| OutputConfig {
        format: Some("json".to_owned()),
        schema: Some(schema),
        constrained: Some(true),
        ..OutputConfig::default()
    };
    let request = |schema: Value| ModelRequest {
        output: Some(output(schema)),
        ..question("Leeks?")
    };
    let closed = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] });
    let open = json!({ "type": "object", "properties": { "a": { "type": "string" } } });

    let strict = sent(request(closed)).await.body["text"]["format"].take();
    let loose = sent(request(open.clone())).await.body["text"]["format"].take();

    assert_eq!(
        (&strict["strict"], &strict["schema"]["additionalProperties"]),
        (&json!(true), &json!(false))
    );
    assert_eq!((&loose["strict"], &loose["schema"]), (&json!(false), &open));
    assert_eq!(
        (&loose["type"], &loose["name"]),
        (&json!("json_schema"), &json!("output"))
    );
}

#[tokio::test]
async fn reasoning_text_and_calls_become_parts_and_chunks() {
    let asked = answered(Answer::of([
        reasoning("rs_1", "gAAAA+/=", &["I look.", "And look."]),
        message("msg_1", "Looking …"),
        call("fc_1", "call_1", "in_season", r#"{"month": "März"}"#),
    ]))
    .await;

    let expected = json!([
        { "reasoning": "I look.\n\nAnd look.", "metadata": {
            "thoughtSignature": "gAAAA+/=", "signedBy": "openai",
            "openai": { "id": "rs_1", "summary": [
                { "type": "summary_text", "text": "I look." }, { "type": "summary_text", "text": "And look." },
            ] },
        } },
        { "text": "Looking …", "metadata": { "openai": { "id": "msg_1", "status": "completed" } } },
        { "toolRequest": { "ref": "call_1", "name": "in_season", "input": { "month": "März" } },
          "metadata": { "openai": { "id": "fc_1", "status": "completed" } } },
    ]);
    assert_eq!(asked.parts(), expected);
    let streamed = asked.streamed();
    assert_eq!(asked.streamed_text(), "Looking …");
    let reasoning: String = asked
        .chunks
        .iter()
        .map(|chunk| chunk.reasoning().into_owned())
        .collect();
    assert_eq!(reasoning, "I look.\n\nAnd look.");
    let calls: Vec<&Value> = streamed
        .iter()
        .filter(|part| part.get("toolRequest").is_some())
        .collect();
    assert!(calls.len() > 2);
    assert_eq!(
        calls[0]["toolRequest"],
        json!({ "ref": "call_1", "name": "in_season", "input": {}, "partial": true })
    );
    assert_eq!(calls[2]["toolRequest"]["input"], json!({ "month": "M" }));
    assert_eq!(calls.last().unwrap()["toolRequest"].get("partial"), None);
    let response = asked.result.unwrap();
    assert_eq!(response.finish_reason, Some(FinishReason::Stop));
    let usage = response.usage.unwrap();
    assert_eq!(
        (usage.input_tokens, usage.output_tokens, usage.total_tokens),
        (Some(20), Some(12), Some(32))
    );
    assert_eq!(
        (usage.thoughts_tokens, usage.cached_content_tokens),
        (Some(5), Some(8))
    );
    assert_eq!(usage.custom.unwrap()["cache_write_tokens"], 3.into());
}

#[tokio::test]
async fn what_the_provider_gave_comes_back_unchanged_from_a_store() {
    let search = json!({ "type": "web_search_call", "id": "ws_1", "status": "completed", "action": { "query": "leeks" } });
    let server = start_strict([
        Answer::of([
            reasoning("rs_1", "Zmlyc3Q=", &["First."]),
            call("fc_1", "call_1", "look", "{}"),
            call("fc_2", "call_2", "look", r#"{"b":1,"a":2}"#),
        ]),
        Answer::of([
            reasoning("rs_2", "c2Vjb25k", &[]),
            search,
            reasoning("rs_3", "dGhpcmQ=", &["a", "b"]),
            message("msg_1", "Leeks."),
        ]),
        Answer::of([message("msg_2", "You are welcome.")]),
    ])
    .await;

    let (_, second) = asked_and_thanked(plugin(&server), MODEL).await;

    assert_eq!(second.text(), "You are welcome.");
    let input = server.last_body()["input"].take();
    assert_eq!(input[3]["arguments"], r#"{"b":1,"a":2}"#);
}

#[tokio::test]
async fn a_changed_reasoning_item_is_refused_by_the_server_of_these_tests() {
    let server = start_strict([Answer::of([
        reasoning("rs_1", "Zmlyc3Q=", &["First."]),
        message("msg_1", "Leeks."),
    ])])
    .await;

    let error = refusal_of_change(plugin(&server), MODEL, "Zmlyc3Q=", "Zmlyc3Q").await;

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("could not be verified"), "{error}");
}

#[tokio::test]
async fn what_other_providers_gave_is_left_out() {
    let history = messages(json!([
        { "role": "user", "content": [{ "text": "Leeks?" }] },
        { "role": "model", "content": [
            { "reasoning": "Hm.", "metadata": { "thoughtSignature": "c2ln", "signedBy": "anthropic" } },
            { "reasoning": "Unsigned." },
            { "custom": { "redactedThinking": "x" } },
            { "text": "Looking.", "metadata": { "thoughtSignature": "c2ln", "signedBy": "gemini" } },
            { "text": "" },
            { "toolRequest": { "name": "in_season", "ref": "toolu_1", "input": {} }, "metadata": { "anthropic": { "caller": 1 } } },
            { "toolRequest": { "name": "in_season", "input": {} } },
        ] },
        { "role": "tool", "content": [
            { "toolResponse": { "name": "in_season", "ref": "toolu_1", "output": ["leeks"] } },
            { "toolResponse": { "name": "in_season", "content": [{ "text": "a" }, { "media": { "url": "data:image/png;base64,QUI=" } }] } },
        ] },
    ]));

    let input = sent(ModelRequest::new(history)).await.body["input"].take();

    let expected = json!([
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Leeks?" }] },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Looking.", "annotations": [] }] },
        { "type": "function_call", "call_id": "toolu_1", "name": "in_season", "arguments": "{}" },
        { "type": "function_call", "call_id": "call_without_id_1", "name": "in_season", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "toolu_1", "output": "[\"leeks\"]" },
        { "type": "function_call_output", "call_id": "call_without_id_1", "output": [
            { "type": "input_text", "text": "a" },
            { "type": "input_image", "image_url": "data:image/png;base64,QUI=" },
        ] },
    ]);
    assert_eq!(input, expected);
}

#[tokio::test]
async fn finish_reasons_and_refusals_are_distinguished() {
    let refusal = json!({
        "type": "message", "id": "msg_1", "role": "assistant",
        "content": [{ "type": "refusal", "refusal": "I cannot." }],
    });
    let cases = [
        (
            Answer::of([message("m", "a")]).incomplete("max_output_tokens"),
            FinishReason::Length,
            Some("max_output_tokens"),
        ),
        (
            Answer::of([message("m", "a")]).incomplete("content_filter"),
            FinishReason::Blocked,
            Some("content_filter"),
        ),
        (
            Answer::of([message("m", "a")]).incomplete("steered"),
            FinishReason::Other,
            Some("steered"),
        ),
        (Answer::of([refusal]), FinishReason::Blocked, Some("I cannot.")),
        (
            Answer::of([call("fc", "c", "in_season", r#"{"month": "Ma"#)]),
            FinishReason::Length,
            Some("the call of 'in_season' was cut in the middle of its arguments"),
        ),
    ];
    for (answer, reason, message) in cases {
        let response = answered(answer).await.result.unwrap();

        assert_eq!(response.finish_reason, Some(reason));
        assert_eq!(response.finish_message.as_deref(), message);
        assert_eq!(response.message.unwrap().tool_requests().count(), 0);
    }
}

#[tokio::test]
async fn failures_in_a_stream_have_the_status_that_their_code_means() {
    let failed = |code: &str| {
        let error = json!({ "code": code, "message": "Sorry." });
        named_sse(&[json!({ "type": "response.failed", "response": { "status": "failed", "error": error } })])
    };
    for (code, status) in [
        ("server_error", Status::Internal),
        ("rate_limit_exceeded", Status::ResourceExhausted),
        ("invalid_image", Status::InvalidArgument),
    ] {
        let server = Server::replies([Reply::events(failed(code))]).await;

        let error = ask(plugin(&server), MODEL, question("Leeks?"))
            .await
            .result
            .unwrap_err();

        assert_eq!(error.status(), status, "{code}");
        assert!(error.message().contains("Sorry."), "{error}");
    }

    let server = Server::replies([Reply::events(failed("bio_policy"))]).await;
    let response = ask(plugin(&server), MODEL, question("Leeks?"))
        .await
        .result
        .unwrap();
    assert_eq!(response.finish_reason, Some(FinishReason::Blocked));
    assert_eq!(response.finish_message.as_deref(), Some("Sorry."));
}

#[tokio::test]
async fn generated_images_are_media_and_go_back_as_the_item_they_came_in() {
    let image = json!({ "type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "QUI=", "output_format": "webp" });
    let server = start_strict([Answer::of([image.clone()]), Answer::of([message("m", "ok")])]).await;

    let first = ask(plugin(&server), MODEL, question("A leek!")).await;
    let media = first.parts()[0]["media"]["url"].clone();
    let request = ModelRequest::new([
        Message::user("A leek!"),
        first.result.unwrap().message.unwrap(),
        Message::user("Nice."),
    ]);
    ask(plugin(&server), MODEL, request).await.result.unwrap();

    assert_eq!(media, "data:image/webp;base64,QUI=");
    assert_eq!(server.last_body()["input"][1], image);
}

/// As llama.cpp streams: no indices, no sequence numbers, no output in the first event.
#[tokio::test]
async fn a_stream_with_little_in_it_is_enough() {
    let events = [
        json!({ "type": "response.created", "response": {} }),
        json!({ "type": "response.output_item.added", "item": { "type": "message", "id": "m" } }),
        json!({ "type": "response.output_text.delta", "item_id": "m", "delta": "So" }),
        json!({ "type": "response.output_text.delta", "delta": "up." }),
        json!({ "type": "response.completed", "response": { "status": "completed", "output": [
            { "type": "message", "id": "m", "content": [{ "type": "output_text", "text": "Soup." }] },
        ] } }),
    ];
    let server = Server::replies([Reply::events(named_sse(&events))]).await;

    let asked = ask(plugin(&server), MODEL, question("Leeks?")).await;

    assert_eq!(asked.streamed_text(), "Soup.");
    assert_eq!(
        asked.parts(),
        json!([{ "text": "Soup.", "metadata": { "openai": { "id": "m" } } }])
    );
}

#[tokio::test]
async fn embeddings_come_in_the_order_of_the_documents() {
    let answer =
        json!({ "data": [{ "index": 1, "embedding": [0.5] }, { "index": 0, "embedding": [1.0, 2.0] }] });
    let server = Server::replies([Reply::json(&answer)]).await;
    let registry = Registry::new();
    registry.install(Arc::new(plugin(&server))).unwrap();

    let request = EmbedRequest {
        input: ["a", "b"].map(Into::into).to_vec(),
        options: Some(json!({ "dimensions": 2, "apiKey": "sk-other" })),
    };
    let answered = embed_with(&registry, "openai/text-embedding-3-small", request).await;
    let vectors = answered.unwrap().embeddings;

    assert_eq!(vectors[0].embedding, [1.0, 2.0]);
    assert_eq!(vectors[1].embedding, [0.5]);
    let expected = json!({
        "model": "text-embedding-3-small", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2,
    });
    assert_eq!(server.last_body(), expected);
    assert_eq!(server.requests()[0].path, "/v1/embeddings");
    assert_eq!(server.requests()[0].headers["authorization"], "Bearer sk-other");
}

#[tokio::test]
async fn what_the_server_lists_is_listed_once_and_a_failure_is_no_matter() {
    let list =
        json!({ "data": [{ "id": "gpt-test" }, { "id": "text-embedding-3-small" }, { "id": "whisper-1" }] });
    let server = Server::replies([Reply::json(&list)]).await;
    let registry = Registry::new();
    registry.install(Arc::new(plugin(&server))).unwrap();
    let silent = Registry::new();
    silent
        .install(Arc::new(
            OpenAi::new("k").base_url("http://127.0.0.1:9").max_retries(0),
        ))
        .unwrap();

    let listed = registry.list().await.unwrap();
    registry.list().await.unwrap();

    assert!(listed.contains_key("/model/openai/gpt-test"));
    assert!(listed.contains_key("/embedder/openai/text-embedding-3-small"));
    assert!(!listed.keys().any(|key| key.contains("whisper")));
    assert_eq!(server.requests().len(), 1);
    assert!(silent.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_application_without_a_key_is_not_built() {
    let registry = Registry::new();
    let other = OpenAi::compatible("groq", "ftp://groq").key("k");

    let error = registry.install(Arc::new(other)).unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("ftp://groq"), "{error}");
}

#[tokio::test]
async fn parts_that_are_empty_are_not_sent() {
    let request = ModelRequest::new([Message::user(vec![Part::text(""), Part::text("Leeks?")])]);

    let content = sent(request).await.body["input"][0]["content"].take();

    assert_eq!(content, json!([{ "type": "input_text", "text": "Leeks?" }]));
}
