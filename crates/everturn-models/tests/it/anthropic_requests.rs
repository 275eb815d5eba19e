//! Requests to Anthropic.

use std::sync::Arc;

use everturn_ai::{Message, ModelRequest, OutputConfig, Part, ToolChoice, ToolDefinition};
use everturn_core::Status;
use everturn_models::anthropic::{Anthropic, AnthropicConfig, CacheControl, Thinking};
use serde_json::{Value, json};

use crate::anthropic_server::Answer;
use crate::asking::{ask, messages, part, question, question_with};
use crate::server::{Reply, Request, Server, named_sse};

const MODEL: &str = "anthropic/claude-sonnet-5";

fn answer() -> Reply {
    let answer = Answer::of([json!({ "type": "text", "text": "Soup." })]);
    Reply::events(named_sse(&answer.events()))
}

async fn sent_to(model: &str, request: ModelRequest) -> Request {
    let server = Server::replies([answer()]).await;
    let plugin = Anthropic::new("key").base_url(server.url());
    ask(plugin, model, request).await.result.unwrap();
    server.requests().remove(0)
}

async fn sent(request: ModelRequest) -> Value {
    sent_to(MODEL, request).await.body
}

async fn sent_messages(history: Value) -> Value {
    sent(ModelRequest::new(messages(history))).await["messages"].take()
}

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: "Looks it up.".to_owned(),
        input_schema: Some(json!({ "type": "object", "properties": { "month": { "type": "string" } } })),
        ..ToolDefinition::default()
    }
}

#[tokio::test]
async fn a_request_has_the_form_of_the_wire() {
    let request = ModelRequest {
        tools: Some(Arc::from([tool("in_season")])),
        tool_choice: Some(ToolChoice::Required),
        config: Some(
            json!({ "maxOutputTokens": 500, "stopSequences": ["END"], "metadata": { "user_id": "u" } }),
        ),
        ..ModelRequest::new([Message::system("You are a chef."), Message::user("Leeks?")])
    };

    let sent = sent_to(MODEL, request).await;

    assert_eq!(
        (sent.method.as_str(), sent.path.as_str()),
        ("POST", "/v1/messages")
    );
    assert_eq!(sent.headers["x-api-key"], "key");
    assert_eq!(sent.headers["anthropic-version"], "2026-10-21");
    let expected = json!({
        "model": "claude-sonnet-5",
        "max_tokens": 500,
        "system": [{ "type": "text", "text": "You are a chef." }],
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Leeks?" }] }],
        "tools": [{
            "name": "in_season",
            "description": "Looks it up.",
            "input_schema": { "type": "object", "properties": { "month": { "type": "string" } } },
        }],
        "tool_choice": { "type": "any" },
        "stop_sequences": ["END"],
        "metadata": { "user_id": "u" },
        "stream": true,
    });
    assert_eq!(sent.body, expected);
}

#[tokio::test]
async fn nothing_is_sent_that_was_not_set() {
    let body = sent(question("Leeks?")).await;

    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["model", "max_tokens", "messages", "stream"]);
    assert_eq!(body["max_tokens"], 16_384);
    let early = sent_to("anthropic/claude-3-haiku-20240307", question("Leeks?")).await;
    assert_eq!(early.body["max_tokens"], 4_096);
}

#[tokio::test]
async fn a_sampling_value_asks_for_the_version_that_takes_it() {
    let sampled = sent_to(
        MODEL,
        question_with(json!({ "temperature": 0, "topP": 0.5, "topK": 3 })),
    )
    .await;
    let pinned = sent_to(
        MODEL,
        question_with(json!({ "temperature": 0, "anthropicVersion": "2026-10-21", "betas": ["a", "b"] })),
    )
    .await;

    assert_eq!(sampled.headers["anthropic-version"], "2023-06-01");
    assert_eq!(sampled.body["temperature"], 0);
    assert_eq!(
        (&sampled.body["top_p"], &sampled.body["top_k"]),
        (&json!(0.5), &json!(3))
    );
    assert_eq!(pinned.headers["anthropic-version"], "2026-10-21");
    assert_eq!(pinned.headers["anthropic-beta"], "a,b");
    assert!(pinned.body.get("betas").is_none() && pinned.body.get("anthropicVersion").is_none());
}

#[tokio::test]
async fn unknown_settings_reach_the_wire_and_those_of_the_request_are_refused() {
    let body = sent(question_with(
        json!({ "brand_new": { "deep": [1] }, "speed": "fast", "version": "claude-x" }),
    ))
    .await;

    assert_eq!(body["brand_new"], json!({ "deep": [1] }));
    assert_eq!(body["speed"], "fast");
    assert_eq!(body["model"], "claude-x");
    let plugin = Anthropic::new("key").base_url("http://127.0.0.1:9");
    let error = ask(plugin, MODEL, question_with(json!({ "messages": [] })))
        .await
        .result
        .unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("'messages'"), "{error}");
}

#[tokio::test]
async fn settings_may_be_typed_or_in_genkits_form() {
    let typed = AnthropicConfig {
        thinking: Some(Thinking::budget(32_000)),
        ..AnthropicConfig::default()
    };
    let typed = sent(question_with(serde_json::to_value(typed).unwrap())).await;
    let genkit = sent(question_with(
        json!({ "thinking": { "enabled": true, "budgetTokens": 2048 } }),
    ))
    .await;
    let adaptive = sent(question_with(
        json!({ "thinking": { "adaptive": true }, "effort": "low" }),
    ))
    .await;

    assert_eq!(
        typed["thinking"],
        json!({ "type": "enabled", "budget_tokens": 32_000 })
    );
    assert_eq!(typed["max_tokens"], 36_096);
    assert_eq!(
        genkit["thinking"],
        json!({ "type": "enabled", "budget_tokens": 2048 })
    );
    assert_eq!(adaptive["thinking"], json!({ "type": "adaptive" }));
    assert_eq!(adaptive["output_config"], json!({ "effort": "low" }));
}

#[tokio::test]
async fn an_enforced_schema_is_closed_on_a_copy() {
    let schema = json!({
        "type": "object",
        "properties": { "dishes": { "type": "array", "items": { "type": "object", "properties": {} } } },
    });
    let request = ModelRequest {
        output: Some(OutputConfig {
            schema: Some(schema.clone()),
            constrained: Some(true),
            ..OutputConfig::default()
        }),
        ..question("Leeks?")
    };

    let body = sent(request.clone()).await;
    let early = sent_to("anthropic/claude-3-5-haiku", request.clone()).await.body;

    let format = &body["output_config"]["format"];
    assert_eq!(format["type"], "json_schema");
    assert_eq!(format["schema"]["additionalProperties"], false);
    assert_eq!(
        format["schema"]["properties"]["dishes"]["items"]["additionalProperties"],
        false
    );
    assert_eq!(request.output.unwrap().schema, Some(schema));
    assert!(early.get("output_config").is_none());
    let described = early["messages"][0]["content"][1]["text"].as_str().unwrap();
    assert!(
        described.contains("dishes"),
        "an early model receives the schema in words: {described}"
    );
}

#[tokio::test]
async fn cache_breakpoints_come_from_parts_tools_and_settings() {
    let hour = CacheControl::for_an_hour();
    let marked = ToolDefinition {
        metadata: json!({ "cache_control": { "type": "ephemeral" } })
            .as_object()
            .cloned(),
        ..tool("in_season")
    };
    let request = ModelRequest {
        tools: Some(Arc::from([marked])),
        config: Some(json!({ "cacheControl": true })),
        ..ModelRequest::new([
            Message::system(hour.mark("The manual.")),
            Message::user(vec![
                CacheControl::ephemeral().mark("Leeks?"),
                Part::text("Or peas?"),
            ]),
        ])
    };

    let body = sent(request).await;

    assert_eq!(
        body["system"][0]["cache_control"],
        json!({ "type": "ephemeral", "ttl": "1h" })
    );
    assert_eq!(body["tools"][0]["cache_control"], json!({ "type": "ephemeral" }));
    assert_eq!(
        body["messages"][0]["content"][0]["cache_control"],
        json!({ "type": "ephemeral" })
    );
    assert!(body["messages"][0]["content"][1].get("cache_control").is_none());
    assert_eq!(body["cache_control"], json!({ "type": "ephemeral" }));
}

#[tokio::test]
async fn of_too_many_cache_breakpoints_the_earliest_in_messages_are_left_out() {
    let mark = CacheControl::ephemeral();
    let mut history = vec![Message::system(mark.mark("The manual."))];
    for question in 0..6 {
        history.push(Message::user(mark.mark(format!("Question {question}"))));
        history.push(Message::model("Soup."));
    }
    history.push(Message::user("And now?"));

    let body = sent(ModelRequest::new(history)).await;

    let marked: Vec<usize> = (0..body["messages"].as_array().unwrap().len())
        .filter(|index| {
            body["messages"][index]["content"][0]
                .get("cache_control")
                .is_some()
        })
        .collect();
    assert_eq!(marked, [6, 8, 10]);
    assert!(body["system"][0].get("cache_control").is_some());
}

#[tokio::test]
async fn media_becomes_images_and_documents() {
    let media = |url: &str| json!({ "media": { "url": url } });
    let sent = sent_messages(json!([{ "role": "user", "content": [
        media("data:image/png;base64,QUI="),
        media("data:application/pdf;base64,QUI="),
        media("data:text/plain,a%20b"),
        media("https://x.test/cat.png"),
        { "media": { "url": "https://x.test/menu", "contentType": "application/pdf" } },
        { "media": { "url": "anthropic-file:file_1", "contentType": "image/png" } },
        media("anthropic-file:file_2"),
        { "custom": { "anthropicDocument": { "source": { "type": "file", "fileId": "f" }, "title": "Menu" } } },
    ]}]))
    .await;

    let expected = json!([
        { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "QUI=" } },
        { "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "QUI=" } },
        { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "a b" } },
        { "type": "image", "source": { "type": "url", "url": "https://x.test/cat.png" } },
        { "type": "document", "source": { "type": "url", "url": "https://x.test/menu" } },
        { "type": "image", "source": { "type": "file", "file_id": "file_1" } },
        { "type": "document", "source": { "type": "file", "file_id": "file_2" } },
        { "source": { "type": "file", "file_id": "f" }, "title": "Menu", "type": "document" },
    ]);
    assert_eq!(sent[0]["content"], expected);
}

#[tokio::test]
async fn media_that_cannot_be_read_is_named() {
    for url in ["data:video/mp4;base64,QUI=", "gs://bucket/cat", "openai-file:f"] {
        let plugin = Anthropic::new("key").base_url("http://127.0.0.1:9");
        let request = ModelRequest::new(Message::user(Part::media(url)));

        let error = ask(plugin, MODEL, request).await.result.unwrap_err();

        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        assert!(error.message().contains("Claude cannot read"), "{error}");
    }
}

#[tokio::test]
async fn results_of_tools_come_first_with_the_ids_of_their_calls() {
    let request = |name: &str, reference: Option<&str>| json!({ "toolRequest": { "name": name, "ref": reference, "input": { "month": "May" } } });
    let response = |name: &str, reference: Option<&str>, output: Value| json!({ "toolResponse": { "name": name, "ref": reference, "output": output } });
    let sent = sent_messages(json!([
        { "role": "user", "content": [{ "text": "What is there?" }] },
        { "role": "model", "content": [request("a", Some("call:1")), request("b", None)] },
        { "role": "tool", "content": [
            { "text": "Here you are." },
            response("a", Some("call:1"), json!({ "error": "no stock" })),
            response("b", None, json!([1, 2])),
        ]},
        { "role": "user", "content": [{ "text": "Well?" }] },
    ]))
    .await;

    let expected = json!([
        { "role": "user", "content": [{ "type": "text", "text": "What is there?" }] },
        { "role": "assistant", "content": [
            { "type": "tool_use", "id": "call_1", "name": "a", "input": { "month": "May" } },
            { "type": "tool_use", "id": "call_1_2", "name": "b", "input": { "month": "May" } },
        ]},
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "call_1", "content": "{\"error\":\"no stock\"}", "is_error": true },
            { "type": "tool_result", "tool_use_id": "call_1_2", "content": "[1,2]" },
            { "type": "text", "text": "Here you are." },
            { "type": "text", "text": "Well?" },
        ]},
    ]);
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn a_tool_may_answer_with_images_and_with_nothing() {
    let call = |reference: &str| json!({ "toolRequest": { "name": "look", "ref": reference } });
    let sent = sent_messages(json!([
        { "role": "user", "content": [{ "text": "Look." }] },
        { "role": "model", "content": [call("1"), call("2")] },
        { "role": "tool", "content": [
            { "toolResponse": { "name": "look", "ref": "1", "output": "A cat.", "content": [
                { "media": { "url": "data:image/png;base64,QUI=" } },
            ]}},
            { "toolResponse": { "name": "look", "ref": "2" } },
        ]},
    ]))
    .await;

    assert_eq!(sent[1]["content"][0]["input"], json!({}));
    let seen = &sent[2]["content"][0]["content"];
    assert_eq!(seen[0], json!({ "type": "text", "text": "A cat." }));
    assert_eq!(seen[1]["type"], "image");
    assert_eq!(sent[2]["content"][1]["content"], "");
}

#[tokio::test]
async fn a_later_system_message_stands_where_the_model_takes_it() {
    let history = || {
        ModelRequest::new([
            Message::system("You are a chef."),
            Message::user("Leeks?"),
            Message::system("Be brief."),
            Message::model("Soup."),
            Message::system("Be kind."),
            Message::user("And peas?"),
        ])
    };

    let current = sent_to("anthropic/claude-opus-4-8", history()).await.body;
    let early = sent_to("anthropic/claude-opus-4-5", history()).await.body;

    assert_eq!(current["messages"][1]["role"], "system");
    assert_eq!(current["messages"][1]["content"][0]["text"], "Be brief.");
    assert_eq!(
        current["system"].as_array().unwrap().len(),
        2,
        "after the model's message there is no place for it"
    );
    assert_eq!(early["system"].as_array().unwrap().len(), 3);
    assert_eq!(early["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn only_claudes_own_reasoning_goes_back() {
    let sent = sent_messages(json!([
        { "role": "user", "content": [{ "text": "Leeks?" }] },
        { "role": "model", "content": [
            { "reasoning": "mine", "metadata": { "thoughtSignature": "c2lnbmVk", "signedBy": "anthropic" } },
            { "reasoning": "", "metadata": { "thoughtSignature": "b25seQ==" } },
            { "reasoning": "from Go", "metadata": { "signature": "YzJsbmJtVms=" } },
            { "custom": { "redactedThinking": "ZGF0YQ==" } },
            { "custom": { "anthropic": { "type": "server_tool_use", "id": "s", "name": "web_search", "input": {} } } },
            { "reasoning": "Gemini's", "metadata": { "thoughtSignature": "c2ln", "signedBy": "gemini" } },
            { "reasoning": "unsigned" },
            { "custom": { "openai": { "type": "reasoning" } } },
            { "text": "" },
            { "text": "Soup.", "metadata": { "thoughtSignature": "c2ln", "signedBy": "gemini" } },
        ]},
        { "role": "user", "content": [{ "text": "And?" }] },
    ]))
    .await;

    let expected = json!([
        { "type": "thinking", "thinking": "mine", "signature": "c2lnbmVk" },
        { "type": "thinking", "thinking": "", "signature": "b25seQ==" },
        { "type": "thinking", "thinking": "from Go", "signature": "c2lnbmVk" },
        { "type": "redacted_thinking", "data": "ZGF0YQ==" },
        { "type": "server_tool_use", "id": "s", "name": "web_search", "input": {} },
        { "type": "text", "text": "Soup." },
    ]);
    assert_eq!(sent[1]["content"], expected);
}

#[tokio::test]
async fn what_the_model_drew_is_shown_by_the_user() {
    let sent = sent_messages(json!([
        { "role": "user", "content": [{ "text": "Draw." }] },
        { "role": "model", "content": [{ "text": "Here." }, { "media": { "url": "data:image/png;base64,QUI=" } }] },
        { "role": "user", "content": [{ "text": "Larger." }] },
    ]))
    .await;

    assert_eq!(sent[1]["content"].as_array().unwrap().len(), 1);
    assert_eq!(sent[2]["content"][0]["type"], "image");
    assert_eq!(sent[2]["content"][1]["text"], "Larger.");
}

#[tokio::test]
async fn what_a_call_came_with_goes_back_with_it() {
    let call = part(json!({
        "toolRequest": { "name": "a/b", "ref": "1", "input": {} },
        "metadata": { "anthropic": { "caller": { "type": "direct" }, "toolsetName": "t" } },
    }));
    let request = ModelRequest {
        tools: Some(Arc::from([tool("a/b")])),
        config: Some(json!({ "tools": [{ "type": "web_search_20260318", "name": "web_search" }] })),
        ..ModelRequest::new([
            Message::user("Leeks?"),
            Message::model(call.clone()),
            Message::tool(call.respond("yes", None).unwrap()),
        ])
    };

    let body = sent(request).await;

    let expected = json!({
        "type": "tool_use", "id": "1", "name": "a_b", "input": {},
        "caller": { "type": "direct" }, "toolset_name": "t",
    });
    assert_eq!(body["messages"][1]["content"][0], expected);
    assert_eq!(body["tools"][0]["name"], "a_b");
    assert_eq!(body["tools"][1]["type"], "web_search_20260318");
}
