//! Recorded: output formats.
//!
//! Rule: the wording of instructions is free, so where the recording has its own words only their place is
//! compared.

use everturn_ai::{ConstrainedSupport, Generate, ModelInfo, ModelSupports};
use everturn_core::Schema;
use serde_json::{Value, json};

use crate::generate_support::{
    Script, comparable, object_schema, recording, says, scripted, scripted_with, step, streaming,
};

/// Takes the words out of every part of output instructions and checks that there were any.
fn without_words(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| *item = without_words(item.take())),
        Value::Object(members) => {
            if members
                .get("metadata")
                .is_some_and(|metadata| metadata["purpose"] == "output")
            {
                assert!(members["text"].as_str().is_some_and(|text| !text.is_empty()));
                members.insert("text".to_owned(), json!("<instructions>"));
            }
            members
                .values_mut()
                .for_each(|member| *member = without_words(member.take()));
        }
        _ => {}
    }
    value
}

fn enforcing() -> ModelInfo {
    let supports = ModelSupports {
        constrained: Some(ConstrainedSupport::All),
        ..ModelSupports::default()
    };
    ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    }
}

#[tokio::test]
async fn json_from_a_model_that_cannot_enforce_it() {
    let Some(recorded) = recording("json_unsupported_model") else {
        return;
    };
    let (_registry, script, generate) = scripted([step(says("```json\n{\"a\":1}\n```"))]);

    let response = generate
        .prompt("p")
        .output_schema(&object_schema("a", "number"))
        .await
        .unwrap();

    assert_eq!(
        without_words(comparable(script.last_request())),
        without_words(recorded["req"].clone())
    );
    assert_eq!(response.output().unwrap(), recorded["output"]);
    assert_eq!(comparable(json!(response.into_response())), recorded["response"]);
}

#[tokio::test]
async fn json_from_a_model_that_enforces_it() {
    let Some(recorded) = recording("json_constrained_model") else {
        return;
    };
    let (_registry, script, generate) = scripted_with(enforcing(), [step(says("{\"a\":1}"))]);

    let response = generate
        .prompt("p")
        .output_schema(&object_schema("a", "number"))
        .await
        .unwrap();

    assert_eq!(comparable(script.last_request()), recorded["req"]);
    assert_eq!(response.output().unwrap(), recorded["output"]);
}

#[tokio::test]
async fn instructions_that_the_caller_asks_for() {
    let Some(recorded) = recording("json_instructions_true") else {
        return;
    };
    let (_registry, script, generate) = scripted_with(enforcing(), [step(says("{\"a\":1}"))]);

    let generate = generate
        .system("sys")
        .prompt("p")
        .output_schema(&object_schema("a", "number"));
    generate.output_instructions(true).await.unwrap();

    assert_eq!(
        without_words(comparable(script.last_request())),
        without_words(recorded)
    );
}

/// Streams a generation and gives each model chunk's text with its output, as the recordings have them.
async fn chunk_outputs(generate: Generate) -> (Vec<Value>, Value) {
    let mut stream = generate.stream();
    let mut outputs = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.unwrap();
        outputs.push(json!([chunk.text(), chunk.output_value()]));
    }
    let output = stream.response().await.unwrap().output().unwrap();
    (outputs, output)
}

fn in_format(generate: Generate, format: &str, schema: Option<Value>) -> Generate {
    let generate = generate.prompt("p").output_format(format);
    match schema {
        Some(schema) => generate.output_schema(&Schema::from_json(schema).unwrap()),
        None => generate,
    }
}

/// Streams these texts in a format.
async fn run(format: &str, schema: Option<Value>, texts: &[&str]) -> (Script, Vec<Value>, Value) {
    let (_registry, script, generate) = scripted([streaming(texts, says(&texts.concat()))]);
    let (outputs, output) = chunk_outputs(in_format(generate, format, schema)).await;
    (script, outputs, output)
}

fn objects() -> Value {
    json!({ "type": "array", "items": { "type": "object", "properties": { "a": { "type": "number" } } } })
}

#[tokio::test]
async fn an_array() {
    let Some(recorded) = recording("format_array") else {
        return;
    };

    let (script, chunks, output) =
        run("array", Some(objects()), &["x [{\"a\"", ":1},{\"a", "\":2}] y"]).await;

    assert_eq!(
        without_words(comparable(script.last_request())),
        without_words(recorded["req"].clone())
    );
    assert_eq!(output, recorded["output"]);
    assert_eq!(json!(chunks), recorded["chunkOutputs"]);
}

#[tokio::test]
async fn an_enumeration() {
    let Some(recorded) = recording("format_enum") else {
        return;
    };
    let schema = json!({ "type": "string", "enum": ["A", "B"] });

    let (script, chunks, output) = run("enum", Some(schema), &[" \"A\" "]).await;

    assert_eq!(
        without_words(comparable(script.last_request())),
        without_words(recorded["req"].clone())
    );
    assert_eq!(output, recorded["output"]);
    // The recorded runtime has no chunk parser for this format; ours gives the value once it is complete.
    assert_eq!(recorded["chunkOutputs"], json!([[" \"A\" ", null]]));
    assert_eq!(json!(chunks), json!([[" \"A\" ", "A"]]));
}

#[tokio::test]
async fn lines_of_json() {
    let Some(recorded) = recording("format_jsonl") else {
        return;
    };

    let (script, chunks, output) = run("jsonl", Some(objects()), &["{\"a\":1}", "\n{\"a\":2", "}\n"]).await;

    assert_eq!(
        without_words(comparable(script.last_request())),
        without_words(recorded["req"].clone())
    );
    assert_eq!(output, recorded["output"]);
    // Rule: each object once, when its line has ended. The recording repeats an object until its newline
    // arrives.
    let once = json!([["{\"a\":1}", []], ["\n{\"a\":2", [{ "a": 1 }]], ["}\n", [{ "a": 2 }]]]);
    assert_ne!(recorded["chunkOutputs"], once);
    assert_eq!(json!(chunks), once);
}

#[tokio::test]
async fn plain_text() {
    let Some(recorded) = recording("format_text") else {
        return;
    };

    let (script, chunks, output) = run("text", None, &["t"]).await;

    assert_eq!(comparable(script.last_request()), recorded["req"]);
    assert_eq!(output, recorded["output"]);
    assert_eq!(json!(chunks), recorded["chunkOutputs"]);
}
