//! The built-in formats parse whole and streamed answers.

use std::sync::Arc;

use everturn_ai::{
    GenerateActionOutputConfig, Message, ModelResponseChunk, OutputConfig,
    format::{Format, FormatHandler, builtin_formats},
};
use serde_json::{Value, json};

fn format(name: &str) -> Arc<dyn Format> {
    builtin_formats()
        .into_iter()
        .find(|format| format.name() == name)
        .expect("a built-in format")
}

fn handler(name: &str, schema: &Value) -> Box<dyn FormatHandler> {
    format(name).handler(Some(schema)).expect("a schema that fits")
}

fn streamed(handler: &dyn FormatHandler, texts: &[&str]) -> Vec<Option<Value>> {
    let mut parser = handler.chunk_parser();
    texts
        .iter()
        .map(|text| {
            parser
                .parse_chunk(&ModelResponseChunk::new(*text))
                .expect("of the format")
        })
        .collect()
}

fn objects() -> Value {
    json!({ "type": "array", "items": { "type": "object", "properties": { "a": { "type": "number" } } } })
}

#[test]
fn text_is_given_as_it_is_and_streamed_piece_by_piece() {
    let text = format("text").handler(None).unwrap();

    assert_eq!(
        text.parse_message(&Message::model("so it is")),
        Ok(Some(json!("so it is")))
    );
    assert_eq!(
        streamed(&*text, &["so ", "it is"]),
        [Some(json!("so ")), Some(json!("it is"))]
    );
    assert_eq!(text.instructions(), None);
}

#[test]
fn json_is_read_leniently_and_grows_while_streamed() {
    let json = handler("json", &json!({ "type": "object" }));

    assert_eq!(
        json.parse_message(&Message::model("```json\n{\"a\":1}\n```")),
        Ok(Some(json!({ "a": 1 })))
    );
    assert_eq!(json.parse_message(&Message::model("no")), Ok(None));
    assert_eq!(
        streamed(&*json, &["Here: ", "{\"a\": \"b", "c\"}"]),
        [None, Some(json!({ "a": "b" })), Some(json!({ "a": "bc" }))]
    );
}

#[test]
fn array_streams_each_item_once() {
    let array = handler("array", &objects());

    let whole = "x [{\"a\":1},{\"a\":2}] y";
    assert_eq!(
        array.parse_message(&Message::model(whole)),
        Ok(Some(json!([{ "a": 1 }, { "a": 2 }])))
    );
    assert_eq!(
        streamed(&*array, &["x [{\"a\"", ":1},{\"a", "\":2}] y"]),
        [
            Some(json!([])),
            Some(json!([{ "a": 1 }])),
            Some(json!([{ "a": 2 }]))
        ]
    );
    assert_eq!(array.parse_message(&Message::model("no")), Ok(None));
    assert!(array.parse_message(&Message::model("[{\"a\":1}, oops]")).is_err());
}

#[test]
fn jsonl_streams_an_object_when_its_line_has_ended() {
    let jsonl = handler("jsonl", &objects());

    let whole = "```jsonl\n{\"a\":1}\n\n{\"a\":2}\n```";
    assert_eq!(
        jsonl.parse_message(&Message::model(whole)),
        Ok(Some(json!([{ "a": 1 }, { "a": 2 }])))
    );
    assert_eq!(
        streamed(&*jsonl, &["{\"a\":1}", "\n{\"a\":2", "}\n"]),
        [
            Some(json!([])),
            Some(json!([{ "a": 1 }])),
            Some(json!([{ "a": 2 }]))
        ]
    );
    assert_eq!(jsonl.parse_message(&Message::model("no")), Ok(None));
    assert!(
        jsonl
            .parse_message(&Message::model("{\"a\":1}\n{\"a\":"))
            .is_err()
    );
}

#[test]
fn enum_takes_quotes_off_and_accepts_only_what_is_listed() {
    let choice = handler("enum", &json!({ "type": "string", "enum": ["A", "AB", "it's"] }));

    assert_eq!(
        choice.parse_message(&Message::model(" \"A\" \n")),
        Ok(Some(json!("A")))
    );
    assert_eq!(
        choice.parse_message(&Message::model("it's")),
        Ok(Some(json!("it's")))
    );
    assert!(choice.parse_message(&Message::model("C")).is_err());
    assert_eq!(choice.parse_message(&Message::model(" ")), Ok(None));
    assert_eq!(
        streamed(&*choice, &[" \"", "A", "B", "\" "]),
        [None, Some(json!("A")), Some(json!("AB")), Some(json!("AB"))]
    );
}

#[test]
fn enum_finds_its_values_wherever_schemas_list_them() {
    for schema in [
        json!({ "enum": ["A", "B"] }),
        json!({ "type": "object", "properties": { "other": {}, "choice": { "enum": ["A", "B"] } } }),
        json!({ "oneOf": [{ "const": "A", "description": "first" }, { "const": "B" }] }),
    ] {
        let choice = handler("enum", &schema);

        assert_eq!(choice.parse_message(&Message::model("B")), Ok(Some(json!("B"))));
        assert!(choice.instructions().unwrap().contains("A\nB"));
    }
}

#[test]
fn chunks_that_repeat_everything_are_read_once() {
    let jsonl = handler("jsonl", &objects());
    let mut parser = jsonl.chunk_parser();
    let mut parse = |text: &str| {
        let chunk = ModelResponseChunk {
            aggregated: true,
            ..ModelResponseChunk::new(text)
        };
        parser.parse_chunk(&chunk).unwrap()
    };

    assert_eq!(parse("{\"a\":1}\n{"), Some(json!([{ "a": 1 }])));
    assert_eq!(parse("{\"a\":1}\n{\"a\":2}\n"), Some(json!([{ "a": 2 }])));
}

#[test]
fn schemas_that_a_format_cannot_give_are_refused() {
    let cases = [
        ("array", json!({ "type": "object" })),
        ("jsonl", json!({ "type": "object" })),
        ("jsonl", json!({ "type": "array", "items": { "type": "string" } })),
        ("enum", json!({ "type": "number" })),
    ];
    for (name, schema) in cases {
        assert!(format(name).handler(Some(&schema)).is_err(), "{name}");
    }
}

#[test]
fn jsonl_instructions_show_items_with_the_definitions_they_refer_to() {
    let schema = json!({
        "type": "array",
        "items": { "$ref": "#/$defs/Dish" },
        "$defs": { "Dish": { "type": "object" } },
    });

    let instructions = handler("jsonl", &schema).instructions().unwrap();

    assert!(instructions.contains(r##"{"$ref":"#/$defs/Dish","$defs":{"Dish":{"type":"object"}}}"##));
}

#[test]
fn the_callers_settings_override_the_formats() {
    let caller = GenerateActionOutputConfig {
        constrained: Some(false),
        json_schema: Some(json!({ "type": "object" })),
        ..GenerateActionOutputConfig::default()
    };

    let output = format("json").config().resolve(&caller);

    assert_eq!(
        output,
        OutputConfig {
            format: Some("json".into()),
            schema: Some(json!({ "type": "object" })),
            constrained: Some(false),
            content_type: Some("application/json".into()),
        }
    );
}
