//! Requests to Gemini.

use std::sync::Arc;

use everturn_ai::{Message, ModelRequest, OutputConfig, Part, ToolChoice, ToolDefinition};
use everturn_core::Status;
use everturn_models::gemini::{Gemini, GeminiConfig, ThinkingConfig, ThinkingLevel};
use serde_json::{Value, json};

use crate::asking::{ask, messages, question, question_with};
use crate::gemini_server::Answer;
use crate::server::{Reply, Request, Server, sse};

const MODEL: &str = "gemini/gemini-3-pro";

async fn sent_to(model: &str, request: ModelRequest) -> Request {
    let answer = Answer::of([json!({ "text": "Soup." })]);
    let server = Server::replies([Reply::events(sse(&answer.events()))]).await;
    let plugin = Gemini::new("key").base_url(server.url());
    ask(plugin, model, request).await.result.unwrap();
    server.requests().remove(0)
}

async fn sent(request: ModelRequest) -> Value {
    sent_to(MODEL, request).await.body
}

async fn sent_contents(model: &str, history: Value) -> Value {
    sent_to(model, ModelRequest::new(messages(history))).await.body["contents"].take()
}

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: "Looks it up.".to_owned(),
        input_schema: Some(json!({ "type": "object", "additionalProperties": false })),
        ..ToolDefinition::default()
    }
}

#[tokio::test]
async fn a_request_has_the_form_of_the_wire() {
    let request = ModelRequest {
        tools: Some(Arc::from([tool("in_season")])),
        tool_choice: Some(ToolChoice::Required),
        config: Some(json!({ "temperature": 0, "maxOutputTokens": 500, "stopSequences": ["END"] })),
        ..ModelRequest::new([
            Message::system("You are a chef."),
            Message::user("Leeks?"),
            Message::system("Be brief."),
        ])
    };

    let sent = sent_to(MODEL, request).await;

    assert_eq!(
        sent.path,
        "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    );
    assert_eq!(sent.headers["x-goog-api-key"], "key");
    let expected = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "Leeks?" }] }],
        "systemInstruction": { "parts": [{ "text": "You are a chef." }, { "text": "Be brief." }] },
        "tools": [{ "functionDeclarations": [{
            "name": "in_season",
            "description": "Looks it up.",
            "parametersJsonSchema": { "type": "object", "additionalProperties": false },
        }]}],
        "toolConfig": { "functionCallingConfig": { "mode": "ANY" } },
        "generationConfig": { "temperature": 0, "maxOutputTokens": 500, "stopSequences": ["END"] },
    });
    assert_eq!(sent.body, expected);
    let bare = sent_to(MODEL, question("Leeks?")).await.body;
    assert_eq!(
        bare,
        json!({ "contents": [{ "role": "user", "parts": [{ "text": "Leeks?" }] }] })
    );
}

#[tokio::test]
async fn settings_find_their_place_and_unknown_ones_reach_the_wire() {
    let body = sent(question_with(json!({
        "safetySettings": [{ "category": "c", "threshold": "t" }],
        "cached_content": "cachedContents/1",
        "googleSearch": true, "urlContext": false, "codeExecution": {},
        "tools": [{ "googleMaps": { "x": 1 } }],
        "functionCallingConfig": { "mode": "VALIDATED" },
        "toolConfig": { "retrievalConfig": { "y": 1 } },
        "brandNew": [1], "topK": 0,
    })))
    .await;

    assert_eq!(body["safetySettings"][0]["category"], "c");
    assert_eq!(body["cachedContent"], "cachedContents/1");
    let tools = json!([{ "googleSearch": {} }, { "codeExecution": {} }, { "googleMaps": { "x": 1 } }]);
    assert_eq!(body["tools"], tools);
    let tool_config =
        json!({ "functionCallingConfig": { "mode": "VALIDATED" }, "retrievalConfig": { "y": 1 } });
    assert_eq!(body["toolConfig"], tool_config);
    assert_eq!(body["generationConfig"], json!({ "brandNew": [1], "topK": 0 }));
    let plugin = Gemini::new("key").base_url("http://127.0.0.1:9");
    let error = ask(plugin, MODEL, question_with(json!({ "contents": [] })))
        .await
        .result
        .unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn thinking_is_set_by_type() {
    let config = GeminiConfig {
        thinking_config: Some(ThinkingConfig {
            include_thoughts: Some(true),
            thinking_level: Some(ThinkingLevel::Low),
            ..ThinkingConfig::default()
        }),
        ..GeminiConfig::default()
    };

    let body = sent(question_with(serde_json::to_value(config).unwrap())).await;

    let expected = json!({ "includeThoughts": true, "thinkingLevel": "LOW" });
    assert_eq!(body["generationConfig"]["thinkingConfig"], expected);
}

#[tokio::test]
async fn an_enforced_schema_goes_as_it_is_unless_the_model_is_early_and_has_tools() {
    let schema = json!({ "type": "object", "properties": { "dish": { "type": "string" } } });
    let request = |has_tools: bool| ModelRequest {
        tools: has_tools.then(|| Arc::from([tool("in_season")])),
        output: Some(OutputConfig {
            format: Some("json".to_owned()),
            schema: Some(schema.clone()),
            constrained: Some(true),
            ..OutputConfig::default()
        }),
        ..question("Leeks?")
    };
    let legacy = ModelRequest {
        config: Some(json!({ "legacySchema": true })),
        ..request(true)
    };

    let current = sent(request(true)).await;
    let early = sent_to("gemini/gemini-2.5-flash", request(false)).await.body;
    let early_with_tools = sent_to("gemini/gemini-2.5-flash", request(true)).await.body;
    let legacy = sent(legacy).await;

    let enforced = json!({ "responseMimeType": "application/json", "responseJsonSchema": schema });
    assert_eq!(current["generationConfig"], enforced);
    assert_eq!(early["generationConfig"], enforced);
    assert!(
        early_with_tools.get("generationConfig").is_none(),
        "the schema is described in words"
    );
    assert_eq!(
        legacy["generationConfig"]["responseSchema"]["properties"]["dish"],
        json!({ "type": "STRING" })
    );
    let parameters = &legacy["tools"][0]["functionDeclarations"][0]["parameters"];
    assert_eq!(*parameters, json!({ "type": "OBJECT" }));
}

#[tokio::test]
async fn media_is_inline_or_by_address() {
    let contents = sent_contents(MODEL, json!([{ "role": "user", "content": [
        { "media": { "url": "data:image/png;base64,QUI=" }, "metadata": { "mediaResolution": { "level": "HIGH" } } },
        { "media": { "url": "https://x.test/cat.png" } },
        { "media": { "url": "gs://bucket/film", "contentType": "video/mp4" },
          "metadata": { "videoMetadata": { "fps": 2 } } },
        { "data": { "n": 1 } },
    ]}]))
    .await;

    let expected = json!([
        { "inlineData": { "mimeType": "image/png", "data": "QUI=" }, "mediaResolution": { "level": "HIGH" } },
        { "fileData": { "fileUri": "https://x.test/cat.png" } },
        { "fileData": { "fileUri": "gs://bucket/film", "mimeType": "video/mp4" }, "videoMetadata": { "fps": 2 } },
        { "text": "{\"n\":1}" },
    ]);
    assert_eq!(contents[0]["parts"], expected);
    let plugin = Gemini::new("key").base_url("http://127.0.0.1:9");
    let foreign = ModelRequest::new(Message::user(Part::media("openai-file:f")));
    let error = ask(plugin, MODEL, foreign).await.result.unwrap_err();
    assert!(error.message().contains("openai-file:"), "{error}");
}

#[tokio::test]
async fn answers_stand_in_the_order_of_their_calls() {
    let call = |reference: &str, metadata: Value| json!({ "toolRequest": { "name": "look", "ref": reference, "input": { "n": reference } }, "metadata": metadata });
    let answer = |reference: &str, output: Value| json!({ "toolResponse": { "name": "look", "ref": reference, "output": output } });
    let contents = sent_contents(
        "gemini/gemini-2.5-flash",
        json!([
            { "role": "user", "content": [{ "text": "Look." }] },
            { "role": "model", "content": [
                call("10", json!({})), call("9", json!({ "gemini": { "noId": true } })), call("8", json!({})),
            ]},
            { "role": "tool", "content": [
                answer("8", json!("text")), answer("9", json!({ "error": "gone" })),
                { "toolResponse": { "name": "look", "ref": "10", "content": [
                    { "text": "a cat" }, { "media": { "url": "data:image/png;base64,QUI=" } },
                ]}},
            ]},
            { "role": "user", "content": [{ "text": "Well?" }] },
        ]),
    )
    .await;

    let expected = json!([
        { "functionResponse": {
            "name": "look", "response": { "output": "a cat" }, "id": "10",
            "parts": [{ "inlineData": { "mimeType": "image/png", "data": "QUI=" } }],
        }},
        { "functionResponse": { "name": "look", "response": { "error": "gone" } } },
        { "functionResponse": { "name": "look", "response": { "output": "text" }, "id": "8" } },
        { "text": "Well?" },
    ]);
    assert_eq!(contents[2]["parts"], expected);
    let made_up = &contents[1]["parts"][1]["functionCall"];
    assert_eq!(*made_up, json!({ "name": "look", "args": { "n": "9" } }));
    assert!(
        contents[1]["parts"][0].get("thoughtSignature").is_none(),
        "early models need none"
    );
}

#[tokio::test]
async fn only_geminis_own_signatures_go_back_and_foreign_calls_of_the_turn_are_marked() {
    let call = |reference: &str, metadata: Value| json!({ "toolRequest": { "name": "look", "ref": reference, "input": {} }, "metadata": metadata });
    let answer =
        |reference: &str| json!({ "toolResponse": { "name": "look", "ref": reference, "output": 1 } });
    let contents = sent_contents(MODEL, json!([
        { "role": "user", "content": [{ "text": "Before." }] },
        { "role": "model", "content": [call("0", json!({ "thoughtSignature": "eA==", "signedBy": "anthropic" }))] },
        { "role": "tool", "content": [answer("0")] },
        { "role": "model", "content": [
            { "reasoning": "Claude's", "metadata": { "thoughtSignature": "eA==", "signedBy": "anthropic" } },
            { "reasoning": "unsigned" },
            { "text": "Now.", "metadata": { "thoughtSignature": "eA==", "signedBy": "anthropic" } },
        ]},
        { "role": "user", "content": [{ "text": "Look." }] },
        { "role": "model", "content": [
            { "reasoning": "own", "metadata": { "thoughtSignature": "YQ==", "signedBy": "gemini" } },
            call("1", json!({ "thoughtSignature": "Yg==", "signedBy": "gemini" })), call("2", json!({})),
        ]},
        { "role": "tool", "content": [answer("1"), answer("2")] },
        { "role": "model", "content": [call("3", json!({})), call("4", json!({ "signature": "Yw==" }))] },
        { "role": "tool", "content": [answer("3"), answer("4")] },
        { "role": "model", "content": [
            { "text": "", "metadata": { "thoughtSignature": "ZA==" } },
            { "custom": { "executableCode": { "language": "PYTHON", "code": "1" } },
              "metadata": { "thoughtSignature": "ZQ==", "signedBy": "gemini" } },
            { "custom": { "geminiToolCall": { "toolType": "x" } } },
            { "custom": { "gemini": { "novel": 1, "thoughtSignature": "Zg==" } } },
            { "custom": { "anthropic": { "type": "compaction" } } },
        ]},
        { "role": "user", "content": [{ "text": "" }, { "media": { "url": "data:image/png;base64,QUI=" } }] },
    ]))
    .await;

    let signatures = |turn: usize| -> Vec<Value> {
        let parts = contents[turn]["parts"].as_array().unwrap();
        parts
            .iter()
            .map(|part| part["thoughtSignature"].clone())
            .collect()
    };
    assert_eq!(signatures(1), [Value::Null], "an earlier turn is not marked");
    assert_eq!(contents[3]["parts"], json!([{ "text": "Now." }]));
    assert_eq!(
        contents[5]["parts"][0],
        json!({ "text": "own", "thought": true, "thoughtSignature": "YQ==" })
    );
    assert_eq!(signatures(5)[1..], [json!("Yg=="), Value::Null]);
    assert_eq!(
        signatures(7),
        [Value::Null, json!("Yw==")],
        "the current turn begins with the last user message"
    );
    let last = json!([
        { "text": "", "thoughtSignature": "ZA==" },
        { "executableCode": { "language": "PYTHON", "code": "1" }, "thoughtSignature": "ZQ==" },
        { "toolCall": { "toolType": "x" } },
        { "novel": 1, "thoughtSignature": "Zg==" },
    ]);
    assert_eq!(contents[9]["parts"], last);
    assert_eq!(contents[10]["parts"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_turn_that_another_model_began_can_be_continued() {
    let contents = sent_contents(
        MODEL,
        json!([
            { "role": "user", "content": [{ "text": "Look." }] },
            { "role": "model", "content": [
                { "toolRequest": { "name": "look", "ref": "toolu_1", "input": "not an object" },
                  "metadata": { "thoughtSignature": "eA==", "signedBy": "anthropic" } },
                { "toolRequest": { "name": "look", "ref": "toolu_2" } },
            ]},
            { "role": "tool", "content": [
                { "toolResponse": { "name": "look", "ref": "toolu_1", "output": 1 } },
                { "toolResponse": { "name": "look", "ref": "toolu_2" } },
            ]},
        ]),
    )
    .await;

    let calls = json!([
        { "functionCall": { "name": "look", "args": { "input": "not an object" }, "id": "toolu_1" },
          "thoughtSignature": "skip_thought_signature_validator" },
        { "functionCall": { "name": "look", "args": {}, "id": "toolu_2" } },
    ]);
    assert_eq!(contents[1]["parts"], calls);
    assert_eq!(
        contents[2]["parts"][1]["functionResponse"]["response"],
        json!({ "output": "" })
    );
}
