//! Every format turns any answer of a model into valid output or an error, and never panics.

use everturn_core::{Error, Reason, Schema, Status};
use serde_json::{Value, json};

use crate::generate_support::{says, scripted, step, streaming};

const GARBAGE: [&str; 9] = [
    "",
    "I'd rather not.",
    "{",
    "]]]]",
    "{\"a\": }",
    "[{\"a\": 1}, {\"b\"",
    "{\"a\": \"not a number\"}\n{\"a\":",
    "\u{0}\u{ffff}\\\"\\u12",
    "```json\n```",
];

fn formats() -> [(&'static str, Option<Value>); 5] {
    let object = json!({ "type": "object", "properties": { "a": { "type": "number" } }, "required": ["a"] });
    let list = json!({ "type": "array", "minItems": 1, "items": object.clone() });
    [
        ("text", None),
        ("json", Some(object)),
        ("array", Some(list.clone())),
        ("jsonl", Some(list)),
        ("enum", Some(json!({ "type": "string", "enum": ["A", "B"] }))),
    ]
}

async fn generate(format: &str, schema: Option<Value>, text: &str) -> Result<Value, Error> {
    let (_registry, _script, generate) = scripted([step(says(text))]);
    let generate = generate.prompt("p").output_format(format);
    let generate = match schema {
        Some(schema) => generate.output_schema(&Schema::from_json(schema).unwrap()),
        None => generate,
    };
    generate.await?.output()
}

#[tokio::test]
async fn garbage_is_an_internal_error_in_every_structured_format() {
    for (format, schema) in formats().into_iter().filter(|(format, _)| *format != "text") {
        for text in GARBAGE {
            let result = generate(format, schema.clone(), text).await;

            if let Ok(output) = &result {
                // Lenient reading may save a part; what it saves is valid.
                let schema = Schema::from_json(schema.clone().unwrap()).unwrap();
                assert!(
                    schema.validate(output).is_ok(),
                    "{format}: {text:?} gave {output}"
                );
                continue;
            }
            let error = result.unwrap_err();
            assert_eq!(error.status(), Status::Internal, "{format}: {text:?}");
            assert!(
                error.is(Reason::INVALID_OUTPUT),
                "{format}: {text:?} gave {error}"
            );
        }
    }
}

#[tokio::test]
async fn any_text_is_text() {
    for text in GARBAGE {
        assert_eq!(generate("text", None, text).await.unwrap(), json!(text));
    }
}

#[tokio::test]
async fn garbage_in_a_stream_gives_no_partial_output_and_no_panic() {
    for (format, schema) in formats() {
        let (_registry, _script, generate) = scripted([streaming(&GARBAGE, says(&GARBAGE.concat()))]);
        let generate = generate.prompt("p").output_format(format);
        let generate = match &schema {
            Some(schema) => generate.output_schema(&Schema::from_json(schema.clone()).unwrap()),
            None => generate,
        };

        let mut stream = generate.stream();
        let mut chunks = 0;
        while let Some(Ok(chunk)) = stream.next().await {
            let _partial: Option<Value> = chunk.output_value();
            chunks += 1;
        }

        assert_eq!(chunks, GARBAGE.len(), "{format}");
    }
}
