//! The types write what the protocol's JSON Schema describes, and read back what they wrote.

use everturn_ai::{GenerateActionOptions, JsonObject, Message, ModelReference, ModelResponse, Part, Usage};
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};
use schemars::{JsonSchema, schema_for};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::wire;
use crate::wire::values;

/// Values of a type are valid by each of the named definitions, by the type's own schema, and survive a round
/// trip.
fn holds<T>(definitions: &[&str], strategy: impl Strategy<Value = T>)
where
    T: Serialize + DeserializeOwned + JsonSchema + PartialEq + std::fmt::Debug,
{
    let Some(schema) = wire::schema() else { return };
    let own = jsonschema::validator_for(schema_for!(T).as_value()).expect("a schema");
    let validators: Vec<_> = definitions
        .iter()
        .map(|name| wire::validator(&schema, name))
        .collect();

    TestRunner::default()
        .run(&strategy, |value| {
            let written = serde_json::to_value(&value).expect("writable");
            for validator in validators.iter().chain([&own]) {
                if let Err(error) = validator.validate(&written) {
                    return Err(TestCaseError::fail(format!(
                        "{error} at {} in {written}",
                        error.instance_path()
                    )));
                }
            }
            prop_assert_eq!(serde_json::from_value::<T>(written).expect("readable"), value);
            Ok(())
        })
        .expect("the property holds");
}

macro_rules! wire_types {
    ($($test:ident: $strategy:ident => $($definition:literal),+;)+) => {$(
        #[test]
        fn $test() {
            holds(&[$($definition),+], values::$strategy());
        }
    )+};
}

wire_types! {
    parts: part => "Part";
    messages: message => "Message";
    documents: document => "DocumentData";
    media: media => "Media";
    tool_requests: tool_request => "ToolRequest";
    tool_responses: tool_response => "ToolResponse";
    multipart_tool_responses: multipart => "MultipartToolResponse";
    tool_definitions: tool_definition => "ToolDefinition";
    output_configs: output_config => "OutputConfig";
    model_requests: request => "GenerateRequest", "ModelRequest";
    model_responses: response => "GenerateResponse", "ModelResponse";
    model_response_chunks: chunk => "GenerateResponseChunk", "ModelResponseChunk";
    usages: usage => "GenerationUsage";
    operations: operation => "Operation";
    generate_action_options: generate_options => "GenerateActionOptions";
    middleware_references: middleware_ref => "MiddlewareRef";
    middleware_descriptions: middleware_desc => "MiddlewareDesc";
    model_infos: model_info => "ModelInfo";
    model_references: model_reference => "ModelReference";
    generation_configs: generation_config => "GenerationCommonConfig";
    embed_requests: embed_request => "EmbedRequest";
    embed_responses: embed_response => "EmbedResponse";
    retriever_requests: retriever_request => "RetrieverRequest";
    retriever_responses: retriever_response => "RetrieverResponse";
    reranker_requests: reranker_request => "RerankerRequest";
    reranker_responses: reranker_response => "RerankerResponse";
    eval_requests: eval_request => "EvalRequest";
    eval_responses: eval_response => "EvalResponse";
}

#[test]
fn whole_numbers_are_written_without_a_fraction() {
    let response = ModelResponse {
        latency_ms: Some(12.0),
        usage: Some(Usage {
            input_tokens: Some(3),
            ..Usage::default()
        }),
        ..ModelResponse::default()
    };

    let written = serde_json::to_string(&response).unwrap();

    assert_eq!(written, r#"{"latencyMs":12,"usage":{"inputTokens":3}}"#);
}

#[test]
fn counts_written_as_doubles_are_read() {
    let usage: Usage = serde_json::from_value(json!({ "inputTokens": 12.0, "outputTokens": null })).unwrap();

    assert_eq!(usage.input_tokens, Some(12));
    assert_eq!(usage.output_tokens, None);
    assert!(serde_json::from_value::<Usage>(json!({ "inputTokens": -1 })).is_err());
}

#[test]
fn the_first_of_the_deprecated_candidates_is_the_answer() {
    let response: ModelResponse = serde_json::from_value(json!({
        "candidates": [
            { "index": 0, "message": { "role": "model", "content": [{ "text": "a" }] }, "finishReason": "stop" },
            { "index": 1, "message": { "role": "model", "content": [{ "text": "b" }] }, "finishReason": "length" },
        ],
    }))
    .unwrap();

    assert_eq!(response, ModelResponse::text_of("a"));
}

#[test]
fn a_model_reference_may_be_a_bare_string() {
    let bare: ModelReference = serde_json::from_value(json!("openai/gpt")).unwrap();

    assert_eq!(bare, ModelReference::new("openai/gpt"));
}

#[test]
fn the_recorded_messages_are_read_and_written_back() {
    let Some(recording) = wire::read("observed/js-generate.json") else {
        return;
    };
    let mut messages = Vec::new();
    collect_messages(&recording, &mut messages);
    assert!(messages.len() > 20);

    for recorded in messages {
        let message: Message = serde_json::from_value(recorded.clone()).unwrap();
        assert_eq!(
            serde_json::to_value(&message).unwrap(),
            without_empty_metadata(recorded)
        );
    }
}

fn collect_messages(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(object) if object.contains_key("role") && !object.contains_key("index") => {
            found.push(value.clone());
        }
        Value::Object(object) => object.values().for_each(|value| collect_messages(value, found)),
        Value::Array(items) => items.iter().for_each(|value| collect_messages(value, found)),
        _ => {}
    }
}

/// Empty metadata is not written.
fn without_empty_metadata(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let keep = |(key, value): &(String, Value)| key != "metadata" || *value != json!({});
            let kept = object.into_iter().filter(keep);
            Value::Object(
                kept.map(|(key, value)| (key, without_empty_metadata(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.into_iter().map(without_empty_metadata).collect(),
        other => other,
    }
}

#[test]
fn answers_to_interrupts_repeat_the_call_and_say_that_they_are() {
    let paused: Part = serde_json::from_value(json!({
        "toolRequest": { "name": "ask", "ref": "2", "input": { "q": "?" } },
        "metadata": { "interrupt": { "why": "x" }, "other": 1 },
    }))
    .unwrap();

    let respond = paused.respond("yes", None).unwrap();
    let restart = paused
        .restart(Some(json!({ "k": 1 })), Some(json!({ "q": "!" })))
        .unwrap();

    assert_eq!(
        serde_json::to_value(respond).unwrap(),
        json!({
            "toolResponse": { "name": "ask", "ref": "2", "output": "yes" },
            "metadata": { "interruptResponse": true },
        })
    );
    assert_eq!(
        serde_json::to_value(restart).unwrap(),
        json!({
            "toolRequest": { "name": "ask", "ref": "2", "input": { "q": "!" } },
            "metadata": { "other": 1, "resumed": { "k": 1 }, "replacedInput": { "q": "?" } },
        })
    );
    assert_eq!(Part::text("no").respond("yes", None), None);
    assert_eq!(Part::text("no").restart(None, None), None);
}

#[test]
fn the_conformance_inputs_are_read() {
    let options: GenerateActionOptions = serde_json::from_value(json!({
        "model": "programmableModel",
        "messages": [{ "role": "user", "content": [{ "text": "hi" }] }],
        "config": { "temperature": 11 },
        "tools": ["testTool"],
    }))
    .unwrap();

    assert_eq!(options.messages.len(), 1);
    assert_eq!(
        options.config,
        Some(Value::Object(JsonObject::from_iter([(
            "temperature".into(),
            11.into()
        )])))
    );
}
