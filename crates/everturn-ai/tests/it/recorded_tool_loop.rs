//! Recorded: running tools.

use std::time::Duration;

use everturn_ai::{Message, MultipartToolResponse, Part, Tool, ToolContext, reason};
use everturn_core::{Error, Status};
use serde_json::{Value, json};

use crate::generate_support::{
    Chunks, assert_fails_as_recorded, comparable, constant, message, object_schema, recording, request, says,
    scripted, step, streaming,
};

/// A tool that answers after a while.
#[expect(clippy::disallowed_methods, reason = "the clock is paused")]
fn slow(name: &str, output: &'static str, millis: u64) -> Tool {
    Tool::dynamic(name, "d", None, move |_input, _cx: ToolContext| async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        Ok(json!(output))
    })
}

/// Puts the tool responses of every message and chunk in the order of their references.
fn in_request_order(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => {
            let reference = |item: &Value| item.pointer("/toolResponse/ref").map(ToString::to_string);
            for item in items.iter_mut() {
                *item = in_request_order(item.take());
            }
            if items.iter().all(|item| reference(item).is_some()) {
                items.sort_by_key(reference);
            }
        }
        Value::Object(members) => members
            .values_mut()
            .for_each(|member| *member = in_request_order(member.take())),
        _ => {}
    }
    value
}

#[tokio::test(start_paused = true)]
async fn a_streamed_tool_loop() {
    let Some(recorded) = recording("tool_loop_stream_indices") else {
        return;
    };
    let asks =
        message(json!([{ "text": "x" }, request("slow", "r1", json!({})), request("fast", "r2", json!({}))]));
    let (_registry, script, generate) =
        scripted([streaming(&["a", "b"], asks), streaming(&["c"], says("done"))]);
    let chunks = Chunks::default();

    let generate = generate
        .prompt("hi")
        .tool(slow("slow", "slow out", 30))
        .tool(slow("fast", "fast out", 1));
    let response = generate.emitter(chunks.emitter()).await.unwrap();

    // Rule: tool responses in the order of the requests. The recording has them in the order of completion.
    let recorded = in_request_order(recorded);
    assert_eq!(comparable(json!(response.into_response())), recorded["response"]);
    assert_eq!(comparable(script.json_requests()), recorded["reqs"]);
    assert_eq!(comparable(chunks.all()), recorded["chunks"]);
}

#[tokio::test]
async fn the_tools_chunk_does_not_advance_after_a_silent_model() {
    let Some(recorded) = recording("tool_loop_stream_no_model_chunks") else {
        return;
    };
    let asks = message(json!([request("t", "r1", json!({}))]));
    let (_registry, _script, generate) = scripted([step(asks), streaming(&["z"], says("done"))]);
    let chunks = Chunks::default();

    generate
        .prompt("hi")
        .tool(constant("t", "o"))
        .emitter(chunks.emitter())
        .await
        .unwrap();

    assert_eq!(comparable(chunks.all()), recorded);
}

#[tokio::test]
async fn a_tools_error_fails_the_call() {
    let Some(recorded) = recording("tool_error") else {
        return;
    };
    let (_registry, _script, generate) = scripted([step(message(json!([request("t", "1", json!({}))])))]);
    let boom = Tool::dynamic("t", "d", None, |_input, _cx: ToolContext| async {
        Err(Error::unavailable("boom").into())
    });

    let error = generate.prompt("p").tool(boom).await.unwrap_err();

    // Rule: INTERNAL, wrapping the cause. The recording has the tool's error as it is.
    assert_eq!(error.status(), Status::Internal);
    assert!(error.is(reason::TOOL_FAILED));
    let cause = recorded["error"]["message"].as_str().unwrap();
    assert!(error.message().ends_with(cause), "{error}");
    assert!(format!("{error:?}").contains("caused by: boom"), "{error:?}");
}

#[tokio::test]
async fn a_tool_that_does_not_exist() {
    let (_registry, _script, generate) = scripted([step(message(json!([request("nope", "1", json!({}))])))]);

    let error = generate.prompt("p").tool(constant("t", "o")).await.unwrap_err();

    assert_fails_as_recorded("unknown_tool_called", &error);
    assert!(error.is(reason::TOOL_NOT_FOUND));
    assert!(error.message().contains("nope"), "{error}");
}

#[tokio::test]
async fn two_tools_of_one_short_name() {
    let (_registry, script, generate) = scripted([]);

    let error = generate
        .prompt("p")
        .tool(constant("a/t", "o"))
        .tool(constant("b/t", "o"))
        .await
        .unwrap_err();

    assert_fails_as_recorded("duplicate_short_names", &error);
    assert!(error.message().contains("'b/t' and 'a/t'"), "{error}");
    assert_eq!(script.calls(), 0);
}

#[tokio::test]
async fn a_tool_of_a_plugin_is_known_by_its_short_name() {
    let Some(recorded) = recording("slash_tool_definition") else {
        return;
    };
    let asks = message(json!([request("t", "1", json!({ "x": 1 }))]));
    let (registry, script, generate) = scripted([step(asks), step(says("x"))]);
    constant("a/t", "o")
        .with_input_schema(object_schema("x", "number"))
        .register(&registry)
        .unwrap();

    let response = generate.prompt("p").tool("a/t").await.unwrap();

    assert_eq!(
        comparable(script.last_request()["tools"].clone()),
        recorded["tools"]
    );
    assert_eq!(comparable(json!(response.messages())), recorded["messages"]);
}

#[tokio::test]
async fn a_multipart_tool() {
    let Some(recorded) = recording("multipart_tool") else {
        return;
    };
    let asks = message(json!([request("mp", "1", json!({}))]));
    let (_registry, script, generate) = scripted([step(asks), step(says("x"))]);
    let tool = Tool::multipart("mp", "d", |_input: Value, _cx: ToolContext| async {
        let image = json!({ "media": { "url": "data:image/png;base64,AA==", "contentType": "image/png" } });
        Ok(MultipartToolResponse {
            output: Some(json!({ "a": 1 })),
            content: vec![serde_json::from_value::<Part>(image)?],
            metadata: json!({ "k": 1 }).as_object().cloned(),
        })
    });

    let response = generate
        .prompt("p")
        .tool(tool.with_input_schema(None))
        .await
        .unwrap();

    // Rule: the definition shows the logical output's schema. The recording shows that of the envelope.
    let mut expected = recorded["tools"].clone();
    expected[0]["outputSchema"] = json!({ "$schema": "http://json-schema.org/draft-07/schema#" });
    assert_eq!(comparable(script.last_request()["tools"].clone()), expected);
    let tool_message = response
        .messages()
        .iter()
        .find(|message| message.role().as_str() == "tool")
        .cloned();
    assert_eq!(comparable(json!(tool_message)), recorded["toolMessage"]);
    assert_eq!(
        tool_message.as_ref().map(Message::content).map(<[_]>::len),
        Some(1)
    );
}
