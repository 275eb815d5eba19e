//! OpenAI's Chat Completions, and the many servers that are almost compatible.

use std::sync::Arc;

use everturn_ai::{FinishReason, Generate, ModelRequest, OutputConfig, Tool, ToolContext, ToolDefinition};
use everturn_core::{Registry, Status};
use everturn_models::openai::{Api, OpenAi};
use serde_json::{Value, json};

use crate::asking::{Asked, ask, messages, question, question_with};
use crate::server::{Reply, Server, sse};

const MODEL: &str = "groq/llama";

fn plugin(server: &Server) -> OpenAi {
    OpenAi::compatible("groq", server.url())
}

/// Chunks as they go over the wire, each with this in its `choices`.
pub(crate) fn stream(choices: &[Value]) -> String {
    let chunk = |choice: &Value| json!({ "id": "c", "object": "chat.completion.chunk", "choices": [choice] });
    sse(&choices.iter().map(chunk).collect::<Vec<_>>()) + "data: [DONE]\n\n"
}

pub(crate) fn delta(delta: Value) -> Value {
    json!({ "index": 0, "delta": delta, "finish_reason": null })
}

pub(crate) fn end(reason: &str) -> Value {
    json!({ "index": 0, "delta": {}, "finish_reason": reason })
}

async fn answered(choices: &[Value]) -> Asked {
    answered_with(Reply::events(stream(choices))).await
}

async fn answered_with(reply: Reply) -> Asked {
    let server = Server::replies([reply]).await;
    ask(plugin(&server), MODEL, question("Leeks?")).await
}

async fn sent_by(plugin: impl Fn(&Server) -> OpenAi, model: &str, request: ModelRequest) -> Value {
    let server = Server::replies([Reply::events(stream(&[end("stop")]))]).await;
    ask(plugin(&server), model, request).await.result.unwrap();
    server.last_body()
}

async fn sent(request: ModelRequest) -> Value {
    sent_by(plugin, MODEL, request).await
}

fn history() -> Value {
    json!([
        { "role": "system", "content": [{ "text": "You are a chef." }] },
        { "role": "user", "content": [{ "text": "Leeks?" }, { "text": "Now." }] },
        { "role": "model", "content": [
            { "reasoning": "Hm.", "metadata": { "groq": { "reasoningField": "reasoning_content" } } },
            { "text": "Looking." },
            { "toolRequest": { "name": "shop/season", "ref": "call_1", "input": { "b": 1, "a": 2 } },
              "metadata": { "groq": { "extraContent": { "google": { "thought_signature": "c2ln" } } } } },
        ] },
        { "role": "tool", "content": [{ "toolResponse": { "name": "shop/season", "ref": "call_1", "output": "leeks",
            "content": [{ "media": { "url": "data:image/png;base64,QUI=" } }] } }] },
    ])
}

#[tokio::test]
async fn a_request_has_the_form_of_the_wire() {
    let tool = ToolDefinition {
        name: "shop/season".to_owned(),
        description: "What is in season.".to_owned(),
        ..ToolDefinition::default()
    };
    let request = ModelRequest {
        tools: Some(Arc::from([tool])),
        config: Some(
            json!({ "maxOutputTokens": 9, "topK": 3, "stopSequences": ["END"], "min_p": 0.1, "temperature": 0 }),
        ),
        ..ModelRequest::new(messages(history()))
    };

    let expected = json!({
        "model": "llama",
        "messages": [
            { "role": "system", "content": "You are a chef." },
            { "role": "user", "content": "Leeks?\nNow." },
            { "role": "assistant", "content": "Looking.", "reasoning_content": "Hm.", "tool_calls": [{
                "id": "call_1", "type": "function",
                "function": { "name": "shop_season", "arguments": "{\"b\":1,\"a\":2}" },
                "extra_content": { "google": { "thought_signature": "c2ln" } },
            }] },
            { "role": "tool", "tool_call_id": "call_1", "content": "leeks" },
            { "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "data:image/png;base64,QUI=" } }] },
        ],
        "stream": true,
        "stream_options": { "include_usage": true },
        "tools": [{ "type": "function", "function": {
            "name": "shop_season", "description": "What is in season.",
            "parameters": { "type": "object", "properties": {} },
        } }],
        "max_tokens": 9, "top_k": 3, "stop": ["END"], "min_p": 0.1, "temperature": 0,
    });
    assert_eq!(sent(request).await, expected);
}

#[tokio::test]
async fn no_key_means_no_header() {
    let server = Server::replies([Reply::events(stream(&[end("stop")]))]).await;

    ask(plugin(&server), MODEL, question("Leeks?"))
        .await
        .result
        .unwrap();

    let request = server.requests().remove(0);
    assert_eq!(request.path, "/v1/chat/completions");
    assert!(!request.headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_schema_is_put_into_words_unless_the_server_enforces_it() {
    let schema =
        json!({ "type": "object", "properties": { "dish": { "type": "string" } }, "required": ["dish"] });
    let request = || ModelRequest {
        output: Some(OutputConfig {
            schema: Some(schema.clone()),
            constrained: Some(true),
            ..OutputConfig::default()
        }),
        ..question("Leeks?")
    };

    let worded = sent(request()).await;
    let enforced = sent_by(|server| plugin(server).enforces_schemas(true), MODEL, request()).await;

    assert_eq!(worded.get("response_format"), None);
    assert!(
        worded["messages"][0]["content"]
            .as_str()
            .unwrap()
            .contains("dish")
    );
    assert_eq!(enforced["response_format"]["json_schema"]["strict"], true);
    assert_eq!(enforced["messages"][0]["content"], "Leeks?");
}

#[tokio::test]
async fn text_reasoning_and_usage_are_read_in_every_form() {
    let chunks = [
        json!({ "choices": [], "prompt_filter_results": [1] }),
        json!({ "choices": [delta(json!({ "role": "assistant", "content": null }))], "usage": null }),
        json!({ "choices": [delta(json!({ "reasoning": "H" }))] }),
        json!({ "choices": [delta(json!({ "reasoning": "m." }))] }),
        json!({ "choices": [delta(json!({ "content": "So" }))], "provider": "x" }),
        json!({ "choices": [delta(json!({ "content": [{ "type": "text", "text": "up." }] }))] }),
        json!({ "choices": [{ "delta": {}, "message": { "content": "Soup." }, "finish_reason": "eos" }] }),
        json!({ "choices": [], "usage": {
            "prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12, "queue_time": 0.5,
            "prompt_tokens_details": { "cached_tokens": 4 }, "completion_tokens_details": { "reasoning_tokens": 2 },
        } }),
    ];
    let asked = answered_with(Reply::events(sse(&chunks) + "data:[DONE]\n\n")).await;

    assert_eq!(asked.streamed_text(), "Soup.");
    let expected = json!([
        { "reasoning": "Hm.", "metadata": { "groq": { "reasoningField": "reasoning" } } },
        { "text": "Soup." },
    ]);
    assert_eq!(asked.parts(), expected);
    let response = asked.result.unwrap();
    assert_eq!(response.finish_reason, Some(FinishReason::Stop));
    assert_eq!(
        response.custom,
        Some(json!({ "prompt_filter_results": [1], "provider": "x" }))
    );
    let usage = response.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(7), Some(5)));
    assert_eq!(
        (usage.cached_content_tokens, usage.thoughts_tokens),
        (Some(4), Some(2))
    );
    assert_eq!(usage.custom.unwrap()["queue_time"].as_f64(), Some(0.5));
}

#[tokio::test]
async fn thinking_among_the_content_is_reasoning() {
    let thinking =
        json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "Hm." }] }] });
    let asked = answered(&[delta(thinking), delta(json!({ "content": "Soup." })), end("stop")]).await;
    let server = Server::replies([Reply::events(stream(&[
        delta(json!({ "content": "<think>Hm.</think>Soup." })),
        end("stop"),
    ]))])
    .await;
    let tagged = ask(
        plugin(&server),
        MODEL,
        question_with(json!({ "parseThinkTags": true })),
    )
    .await;

    assert_eq!(asked.parts()[0]["reasoning"], "Hm.");
    assert_eq!(
        tagged.parts(),
        json!([{ "reasoning": "Hm." }, { "text": "Soup." }])
    );
    assert_eq!(server.last_body().get("parseThinkTags"), None);
}

#[tokio::test]
async fn calls_are_streamed_as_they_come() {
    let call = |fields: Value| delta(json!({ "tool_calls": [fields] }));
    let asked = answered(&[
        call(json!({ "index": 0, "id": "a", "type": "function", "function": { "name": "f", "arguments": "" } })),
        call(json!({ "index": 0, "function": { "arguments": "{\"city\": \"Pa" } })),
        call(json!({ "index": 0, "function": { "arguments": "ris\"}" } })),
        // There are calls, whatever the finish reason.
        end("stop"),
    ])
    .await;

    let calls: Vec<Value> = asked
        .streamed()
        .into_iter()
        .map(|mut part| part["toolRequest"].take())
        .collect();
    let partial = |input: Value| json!({ "ref": "a", "name": "f", "input": input, "partial": true });
    let whole = json!({ "ref": "a", "name": "f", "input": { "city": "Paris" } });
    assert_eq!(
        calls,
        [
            partial(json!({})),
            partial(json!({ "city": "Pa" })),
            partial(json!({ "city": "Paris" })),
            whole.clone()
        ]
    );
    assert_eq!(asked.parts(), json!([{ "toolRequest": whole }]));
}

#[tokio::test]
async fn a_call_that_was_cut_is_left_out_and_named() {
    let call = json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"a\":" } }] });

    let response = answered(&[delta(json!({ "content": "Hm" })), delta(call), end("length")])
        .await
        .result
        .unwrap();

    assert_eq!(response.finish_reason, Some(FinishReason::Length));
    assert!(response.finish_message.unwrap().contains("'f'"));
    assert_eq!(response.message.unwrap().content().len(), 1);
}

#[tokio::test]
async fn finish_reasons_and_refusals_are_distinguished() {
    let text = delta(json!({ "content": "a" }));
    let cases = [
        (vec![text.clone(), end("length")], FinishReason::Length, None),
        (
            vec![text.clone(), end("content_filter")],
            FinishReason::Blocked,
            Some("content_filter"),
        ),
        (
            vec![delta(json!({ "refusal": "No." })), end("stop")],
            FinishReason::Blocked,
            Some("No."),
        ),
        (
            vec![text.clone(), end("bored")],
            FinishReason::Unknown,
            Some("bored"),
        ),
        (vec![text], FinishReason::Stop, None),
    ];
    for (choices, reason, message) in cases {
        let response = answered(&choices).await.result.unwrap();

        assert_eq!(
            (response.finish_reason, response.finish_message.as_deref()),
            (Some(reason), message)
        );
    }
}

#[tokio::test]
async fn errors_in_a_stream_are_found_wherever_they_are() {
    let error = json!({ "code": 429, "message": "slow down" });
    let places = [
        sse(&[json!({ "error": error })]),
        sse(&[json!({ "choices": [{ "error": error, "finish_reason": "error" }] })]),
        format!("event: error\ndata: {error}\n\n"),
    ];
    for place in places {
        let asked = answered_with(Reply::events(
            stream(&[delta(json!({ "content": "a" }))]).replace("data: [DONE]\n\n", &place),
        ))
        .await;

        let error = asked.result.unwrap_err();
        assert_eq!(error.status(), Status::ResourceExhausted, "{place}");
        assert!(error.message().contains("slow down"), "{error}");
    }

    let unnamed = answered(&[end("error")]).await.result.unwrap_err();
    assert_eq!(unnamed.status(), Status::Unavailable);

    let groq =
        json!({ "error": { "code": "tool_use_failed", "message": "bad call", "failed_generation": "x" } });
    let server = Server::replies([Reply::json(&groq).status(400)]).await;
    let failed = ask(plugin(&server).max_retries(0), MODEL, question("Leeks?"))
        .await
        .result
        .unwrap_err();
    assert_eq!(failed.status(), Status::Unavailable);
}

#[tokio::test]
async fn a_body_of_json_that_reports_an_error_is_that_error() {
    let body = json!({ "error": { "message": "no credit", "code": 402 } });

    let error = answered_with(Reply::json(&body)).await.result.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.message().contains("no credit"), "{error}");
}

#[tokio::test]
async fn openai_itself_gets_what_it_takes_and_no_more() {
    everturn_core::install_tls_provider();
    let openai = |server: &Server| {
        // The address decides, so the requests are sent to a proxy of that name.
        let proxy = reqwest::Proxy::http(server.url()).unwrap();
        let client = reqwest::Client::builder().proxy(proxy).build().unwrap();
        OpenAi::new("k")
            .base_url("http://api.openai.com/v1")
            .api(Api::Chat)
            .client(client)
    };
    let config = json!({ "maxOutputTokens": 9, "topK": 3, "temperature": 0.5, "stopSequences": ["END"] });
    let mut told = messages(history());
    told.truncate(3);
    let request = ModelRequest {
        config: Some(config),
        ..ModelRequest::new(told)
    };

    let sent = sent_by(openai, "openai/gpt-5-mini", request).await;

    assert_eq!(sent["max_completion_tokens"], 9);
    for name in ["top_k", "temperature", "stop", "max_tokens"] {
        assert_eq!(sent.get(name), None, "{name}");
    }
    assert_eq!(sent["messages"][2].get("reasoning_content"), None);
}

#[tokio::test]
async fn reasoning_details_come_back_as_they_were() {
    let details = |text: &str| json!([{ "type": "reasoning.text", "index": 0, "text": text, "format": "x" }]);
    let call = json!({ "index": 0, "id": "a", "function": { "name": "in_season", "arguments": "{}" } });
    let server = Server::replies([
        Reply::events(stream(&[
            delta(json!({ "reasoning": "H", "reasoning_details": details("H") })),
            delta(json!({ "reasoning": "m.", "reasoning_details": details("m.") })),
            delta(json!({ "tool_calls": [call] })),
            end("tool_calls"),
        ])),
        Reply::events(stream(&[delta(json!({ "content": "Leeks." })), end("stop")])),
    ])
    .await;
    let registry = Registry::new();
    registry
        .install(Arc::new(OpenAi::compatible("openrouter", server.url())))
        .unwrap();
    let season = Tool::new(
        "in_season",
        "What is in season.",
        |_: Value, _: ToolContext| async { Ok("leeks") },
    );

    let reply = Generate::new(&registry)
        .model("openrouter/m")
        .prompt("Leeks?")
        .tool(season)
        .await
        .unwrap();

    assert_eq!(reply.text(), "Leeks.");
    assert_eq!(
        server.last_body()["messages"][1]["reasoning_details"],
        details("Hm.")
    );
}
