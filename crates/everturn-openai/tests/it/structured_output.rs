//! Answers in a form that the client chooses.

use everturn_ai::{ConstrainedSupport, ModelInfo, ModelSupports, Part, ToolRequest};
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::support::{Served, names};

fn dish() -> Value {
    json!({
        "type": "object",
        "properties": { "dish": { "type": "string" } },
        "required": ["dish"],
        "additionalProperties": false,
    })
}

fn format() -> Value {
    json!({ "type": "json_schema", "name": "dish", "strict": true, "schema": dish() })
}

async fn ask(served: &Served, fields: Value) -> Value {
    let mut body = json!({ "model": "shaper", "input": "what?", "text": { "format": format() } });
    let fields = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    served.post("/responses", body).await.json()
}

fn text_of(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn a_response_has_the_requested_schema() {
    let supports = ModelSupports {
        constrained: Some(ConstrainedSupport::All),
        multiturn: Some(true),
        tools: Some(true),
        ..ModelSupports::default()
    };
    let model = ScriptedModel::new().with_info(ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    });
    let model = model.replies([r#"{"dish": "soup"}"#, "Enjoy."]);
    let served = Served::with(model, |server| server).await;

    let chosen = ask(&served, json!({})).await;
    let schema = served.model.last_request().unwrap().output.unwrap().schema;
    let plain = ask(
        &served,
        json!({ "text": null, "previous_response_id": chosen["id"] }),
    )
    .await;

    assert_eq!(schema, Some(dish()));
    assert_eq!(chosen["status"], "completed");
    assert_eq!(text_of(&chosen), r#"{"dish": "soup"}"#);
    assert_eq!(chosen["text"], json!({ "format": format() }));
    assert_eq!(text_of(&plain), "Enjoy.");
    assert_eq!(plain["text"], json!({ "format": { "type": "text" } }));
}

#[tokio::test]
async fn words_around_the_json_are_left_out_in_the_stream_and_afterwards() {
    let fenced = "Sure:\n```json\n{\"dish\": \"soup\"}\n```";
    let look = Part::tool_request(ToolRequest::new("look", json!({})).with_reference("1"));
    let look = Reply::content(vec![Part::text("Let me look."), look]).streamed();
    let pieces = ["Sure:\n``", "`json\n{\"di", "sh\": \"soup\"", "}\n``", "`"];
    let served = Served::answering([look, Reply::text(fenced).chunks(pieces)]).await;

    let body = json!({
        "model": "shaper", "input": "what?", "text": { "format": format() }, "stream": true,
    });
    let events = served.post("/responses", body).await.events();

    let deltas: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(deltas, r#"{"dish": "soup"}"#, "{:?}", names(&events));
    let response = &events.last().unwrap()["response"];
    let kinds: Vec<&Value> = response["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert_eq!(kinds, ["mcp_call", "message"]);
    assert_eq!(response["output"][1]["content"][0]["text"], deltas);
    let path = format!("/responses/{}", response["id"].as_str().unwrap());
    let again = served.get(&path).await.json();
    assert_eq!(again["output"], response["output"]);
    assert_eq!(again["text"], response["text"]);
}

#[tokio::test]
async fn a_completion_has_the_requested_schema() {
    let json = r#"{"dish": "soup"}"#;
    let fenced = format!("```json\n{json}\n```");
    let served = Served::answering([&*fenced, &*fenced, "Enjoy."]).await;
    let asked = json!([{ "role": "user", "content": "what?" }]);
    let format = json!({ "type": "json_schema", "json_schema": { "name": "dish", "schema": dish() } });
    let complete = |fields: Value| {
        let mut body = json!({ "model": "shaper", "metadata": { "conversation_id": "c" } });
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        served.post("/chat/completions", body)
    };

    let whole = complete(json!({ "messages": asked, "response_format": format }))
        .await
        .json();
    let body = json!({ "model": "shaper", "messages": asked, "response_format": format, "stream": true });
    let chunks = served.post("/chat/completions", body).await.events();

    assert_eq!(whole["choices"][0]["message"]["content"], json);
    let streamed: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(streamed, json);

    // The answer without its fence is recognised when it is sent back.
    let messages = json!([
        asked[0], { "role": "assistant", "content": json }, { "role": "user", "content": "thanks" },
    ]);
    complete(json!({ "messages": messages })).await.json();
    assert_eq!(served.asked().len(), 3, "{:?}", served.asked());
    assert_eq!(served.asked()[1], format!("model: {fenced}"));
}

#[tokio::test]
async fn an_answer_without_the_schema_is_a_failed_response() {
    let served = Served::answering(["I would rather not.", "Nor this."]).await;

    let failed = ask(&served, json!({})).await;
    let body = json!({
        "model": "shaper", "messages": [{ "role": "user", "content": "what?" }],
        "response_format": { "type": "json_object" },
    });
    let completion = served.post("/chat/completions", body).await;

    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["error"]["code"], "invalid_turn");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("does not match the client's output schema"),
        "{message}"
    );
    assert_eq!(completion.status, 500);
    assert_eq!(completion.headers["x-should-retry"], "false");
}

#[tokio::test]
async fn a_format_that_cannot_be_had_is_refused_by_its_name() {
    let served = Served::answering(["never said"; 0]).await;
    let at = |at: &str| format!("text.format{at}");
    for (agent, format, code, param) in [
        ("keeper", format(), "unsupported_parameter", at("")),
        (
            "keeper",
            json!({ "type": "json_object" }),
            "unsupported_parameter",
            at(""),
        ),
        (
            "shaper",
            json!({ "type": "grammar" }),
            "invalid_value",
            at(".type"),
        ),
        ("shaper", json!({}), "missing_required_parameter", at(".type")),
        ("shaper", json!("json"), "invalid_type", at("")),
        (
            "shaper",
            json!({ "type": "json_schema" }),
            "missing_required_parameter",
            at(".schema"),
        ),
        (
            "shaper",
            json!({ "type": "json_schema", "schema": { "type": "array" } }),
            "invalid_json_schema",
            at(".schema"),
        ),
    ] {
        let body = json!({ "model": agent, "input": "hi", "text": { "format": format } });

        let refused = served.post("/responses", body).await.error();

        assert_eq!(refused, (400, code.to_owned(), json!(param)), "{format}");
    }
    let hi = json!([{ "role": "user", "content": "hi" }]);
    let body = json!({ "model": "keeper", "messages": hi, "response_format": { "type": "json_object" } });
    let refused = served.post("/chat/completions", body).await.error();
    assert_eq!(
        refused,
        (400, "unsupported_parameter".into(), json!("response_format"))
    );
    let odd = json!({ "type": "object", "properties": { "a": { "type": "nothing" } } });
    let format = json!({ "type": "json_schema", "name": "odd", "schema": odd });
    let body = json!({ "model": "shaper", "input": "hi", "text": { "format": format } });
    assert_eq!(served.post("/responses", body).await.status, 400);
}

#[tokio::test]
async fn work_in_the_background_has_the_schema_too() {
    let served = Served::answering([r#"{"dish": "soup"}"#]).await;

    let mut run = ask(&served, json!({ "background": true })).await;
    assert_eq!(run["text"], json!({ "format": format() }));
    let path = format!("/responses/{}?stream=true", run["id"].as_str().unwrap());
    run = served.get(&path).await.events().last().unwrap()["response"].clone();

    assert_eq!(run["status"], "completed");
    assert_eq!(text_of(&run), r#"{"dish": "soup"}"#);
}
