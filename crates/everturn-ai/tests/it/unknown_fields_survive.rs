//! Unknown fields and part kinds are written back as they were read.

use everturn_ai::{JsonObject, Message, Part, PartKind};
use proptest::prelude::*;
use serde_json::{Value, json};

fn round_trip<T: serde::de::DeserializeOwned + serde::Serialize>(value: &Value) -> Value {
    let read: T = serde_json::from_value(value.clone()).expect("readable");
    serde_json::to_value(read).expect("writable")
}

#[test]
fn unknown_part_kinds_survive() {
    let part = json!({ "hologram": { "depth": 3 }, "angle": 12, "metadata": { "from": "the future" } });

    let read: Part = serde_json::from_value(part.clone()).unwrap();

    assert!(matches!(read.kind(), PartKind::Unknown(fields) if fields.len() == 2));
    assert_eq!(read.metadata_entry("from"), Some(&json!("the future")));
    assert_eq!(serde_json::to_value(read).unwrap(), part);
}

#[test]
fn unknown_fields_of_every_level_survive() {
    let message = json!({
        "role": "model",
        "content": [
            { "text": "hi", "novel": 1 },
            { "media": { "url": "gs://a", "contentType": "image/png", "novel": 2 }, "novel": 3 },
            { "toolRequest": { "name": "t", "ref": "1", "input": null, "novel": 4 } },
            { "toolResponse": { "name": "t", "output": null, "content": [{ "novel": 5 }], "novel": 6 } },
            { "resource": { "uri": "file:///a", "novel": 7 } },
            { "reasoning": "hm", "novel": 8 },
        ],
        "metadata": { "novel": 9 },
        "novel": 10,
    });

    assert_eq!(round_trip::<Message>(&message), message);
}

#[test]
fn custom_and_data_beside_another_kind_survive() {
    for part in [
        json!({ "media": { "url": "gs://a" }, "custom": { "c": 1 }, "data": [1] }),
        json!({ "text": "hi", "custom": { "c": 1 } }),
        json!({ "text": "hi", "data": { "d": 1 } }),
        json!({ "reasoning": "hm", "data": 0 }),
    ] {
        assert_eq!(round_trip::<Part>(&part), part);
    }
}

#[test]
fn the_kind_follows_the_precedence_of_the_keys() {
    let all = [
        ("media", json!({ "url": "u" })),
        ("toolRequest", json!({ "name": "t" })),
        ("toolResponse", json!({ "name": "t" })),
        ("resource", json!({ "uri": "u" })),
        ("custom", json!({})),
        ("reasoning", json!("r")),
        ("data", json!(1)),
        ("text", json!("t")),
    ];
    for (position, (key, _)) in all.iter().enumerate() {
        let object: JsonObject = all[position..]
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();

        let part = Part::try_from(object).unwrap();

        let found = match part.kind() {
            PartKind::Media(_) => "media",
            PartKind::ToolRequest(_) => "toolRequest",
            PartKind::ToolResponse(_) => "toolResponse",
            PartKind::Resource(_) => "resource",
            PartKind::Custom(_) => "custom",
            PartKind::Reasoning(_) => "reasoning",
            PartKind::Data(_) => "data",
            PartKind::Text(_) => "text",
            other => panic!("unexpected {other:?}"),
        };
        assert_eq!(found, *key);
    }
}

#[test]
fn text_beside_data_or_custom_can_be_read() {
    let part: Part = serde_json::from_value(json!({ "text": "hi", "data": { "d": 1 } })).unwrap();

    assert_eq!(part.as_text(), Some("hi"));
    assert_eq!(part.as_data(), Some(&json!({ "d": 1 })));
}

#[test]
fn empty_fields_do_not_hide_text() {
    let part: Part =
        serde_json::from_value(json!({ "text": "hi", "reasoning": "", "data": "", "media": null })).unwrap();

    assert_eq!(part.kind(), &PartKind::Text("hi".into()));
}

#[test]
fn a_part_without_content_is_empty_text_with_its_metadata() {
    let part: Part =
        serde_json::from_value(json!({ "metadata": { "purpose": "output", "pending": true } })).unwrap();

    assert_eq!(part.kind(), &PartKind::Text(String::new()));
    assert_eq!(part.purpose(), Some("output"));
    assert!(part.is_pending());
}

#[test]
fn a_null_input_or_output_is_not_a_missing_one() {
    let without = json!({ "toolRequest": { "name": "t" } });
    let null = json!({ "toolRequest": { "name": "t", "input": null } });

    assert_eq!(round_trip::<Part>(&without), without);
    assert_eq!(round_trip::<Part>(&null), null);
}

#[test]
fn malformed_parts_and_messages_are_refused_with_a_reason() {
    let cases = [
        (json!({ "role": "model" }), "`content` is required"),
        (
            json!({ "role": "judge", "content": [] }),
            "`role` must be one of system, user, model, tool",
        ),
        (
            json!({ "role": "user", "content": [{ "text": 1 }] }),
            "in `content[0]`: `text` must be a string",
        ),
        (
            json!({ "role": "user", "content": ["hi"] }),
            "`content[0]` must be an object",
        ),
        (
            json!({ "role": "user", "content": [{ "toolRequest": {} }] }),
            "in `content[0]`: in `toolRequest`: `name` is required",
        ),
    ];
    for (message, reason) in cases {
        let error = serde_json::from_value::<Message>(message).unwrap_err();
        assert_eq!(error.to_string(), reason);
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from)
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,3}", inner), 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_object_that_is_read_is_stable_after_one_round_trip(
        members in prop::collection::vec(
            (prop_oneof!["text", "data", "custom", "media", "reasoning", "resource", "metadata", "[a-z]{1,4}"], json_value()),
            0..5,
        )
    ) {
        let object: JsonObject = members.into_iter().collect();
        let Ok(part) = Part::try_from(object.clone()) else { return Ok(()) };

        let written = serde_json::to_value(&part).unwrap();

        for (key, value) in &object {
            let is_kept = value.is_null() || key == "metadata" || written.get(key) == Some(value);
            prop_assert!(is_kept, "{} was lost from {:?}", key, written);
        }
        prop_assert_eq!(serde_json::from_value::<Part>(written).unwrap(), part);
    }
}
