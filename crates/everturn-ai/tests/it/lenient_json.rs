//! JSON is found in, and read from, whatever models write.

use std::time::{Duration, Instant};

use everturn_ai::{ItemCursor, complete_json, extract_items, extract_json, parse_json};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn values_are_found_in_prose_and_fences() {
    let cases = [
        (r#"{"a":1}"#, json!({ "a": 1 })),
        (
            r#"Sure, here you go: {"a": [1, {"b": 2}]} Anything else?"#,
            json!({ "a": [1, { "b": 2 }] }),
        ),
        ("```json\n{\"a\":1}\n```", json!({ "a": 1 })),
        ("As [asked] above:\n```JSON\n{\"a\":1}\n```\n", json!({ "a": 1 })),
        ("Use [1, 2] like so:\n```\n{\"a\":1}\n```\n", json!({ "a": 1 })),
        (
            "{\"md\": \"```json\\n[]\\n```\"}",
            json!({ "md": "```json\n[]\n```" }),
        ),
        (r#"The "[best]" one is {"a":1}"#, json!({ "a": 1 })),
        (r#"A 5" screen [sic]: {"a":1}"#, json!({ "a": 1 })),
        ("\u{a0}{\u{a0}\"a\":\u{a0}1}", json!({ "a": 1 })),
        ("one [two] three {four} [5]", json!([5])),
    ];
    for (text, expected) in cases {
        assert_eq!(extract_json(text), Some(expected), "{text}");
    }
    for text in ["", "none here", "[see below]", "\\", "{oops"] {
        assert!(
            matches!(extract_json(text), None | Some(Value::Object(_))),
            "{text}"
        );
    }
}

#[test]
fn an_item_is_given_once_it_cannot_become_another() {
    for (cut, whole, items) in [
        ("[false", "[false-fruit]", vec![]),
        ("[1, None", "[1, Nonesuch]", vec![json!(1)]),
        ("[true", "[true]", vec![json!(true)]),
        ("[1", "[12]", vec![json!(12)]),
    ] {
        let mut cursor = ItemCursor::default();
        let mut given = extract_items(cut, &mut cursor);
        given.extend(extract_items(whole, &mut cursor));

        assert_eq!(given, items, "{whole}");
    }
}

#[test]
fn almost_json_is_repaired() {
    let cases = [
        (
            "{a: 1, 'b-c': 'it is', $d: .5,}",
            json!({ "a": 1, "b-c": "it is", "$d": 0.5 }),
        ),
        ("[1, 2, 3,]", json!([1, 2, 3])),
        (
            "{ // the first\n \"a\": 1, /* the second */ \"b\": +2 }",
            json!({ "a": 1, "b": 2 }),
        ),
        (
            "{'a': True, 'b': None, 'c': False}",
            json!({ "a": true, "b": null, "c": false }),
        ),
        ("{\"a\": 1\n \"b\": 2}", json!({ "a": 1, "b": 2 })),
        ("[{\"a\": 1} {\"a\": 2}]", json!([{ "a": 1 }, { "a": 2 }])),
        ("{\"a\": \"two\nlines\"}", json!({ "a": "two\nlines" })),
        (
            "{\"a\": \"\\u00e9 \\ud83d\\ude00 \\ud83d \\x41\"}",
            json!({ "a": "é 😀 \u{fffd} A" }),
        ),
        ("{a: 0x1F, b: 007, c: 5.}", json!({ "a": 31, "b": 7, "c": 5.0 })),
    ];
    for (text, expected) in cases {
        assert_eq!(extract_json(text), Some(expected.clone()), "{text}");
        assert_eq!(parse_json(text), Some(expected), "{text}");
    }
}

#[test]
fn cut_off_json_is_completed() {
    let cases = [
        (
            r#"{"a": {"b": [1, {"c": "d"#,
            json!({ "a": { "b": [1, { "c": "d" }] } }),
        ),
        (r#"{"a": "b\"#, json!({ "a": "b" })),
        (r#"{"a": "b\u00"#, json!({ "a": "b" })),
        (r#"{"a": "b\ud83d"#, json!({ "a": "b" })),
        (r#"{"a": tr"#, json!({ "a": true })),
        ("[n", json!([null])),
        (r#"{"a": 1, "b"#, json!({ "a": 1 })),
        (r#"{"a": 1, "b":"#, json!({ "a": 1 })),
        (r#"{"a": 1, b"#, json!({ "a": 1 })),
        (r#"{"a": 1, "b": 12"#, json!({ "a": 1 })),
        ("[1, 2", json!([1])),
        (r#"{"a": 1,"#, json!({ "a": 1 })),
        (r#"{"a": 1 /"#, json!({ "a": 1 })),
        ("{", json!({})),
        ("12", json!(12)),
        ("\"half", json!("half")),
    ];
    for (text, expected) in cases {
        assert_eq!(complete_json(text), Some(expected), "{text}");
    }
    assert_eq!(complete_json(""), None);
    assert_eq!(complete_json("-"), None);
}

#[test]
fn malformed_json_is_cut_back_to_its_valid_beginning() {
    let cases = [
        (r#"{"a": 1, "b": oops}"#, json!({ "a": 1 })),
        (r#"{"a": [1, 2}"#, json!({ "a": [1, 2] })),
        (r#"{"a": "he said "hi" to me"}"#, json!({ "a": "he said " })),
        ("[1, 2, 3x]", json!([1, 2])),
    ];
    for (text, expected) in cases {
        assert_eq!(extract_json(text), Some(expected), "{text}");
        assert_eq!(parse_json(text), None, "{text}");
    }
}

#[test]
fn items_come_once_each_and_only_when_complete() {
    let mut cursor = ItemCursor::default();
    let mut text = String::new();
    let mut seen = Vec::new();
    for piece in [
        "x [see] [{\"a\"",
        ":1},{\"a",
        "\":2}, 1",
        "2, \"th",
        "ree\"] and {\"a\":4}",
    ] {
        text.push_str(piece);
        seen.push(extract_items(&text, &mut cursor));
    }

    assert_eq!(
        seen,
        [
            vec![],
            vec![json!({"a": 1})],
            vec![json!({"a": 2})],
            vec![json!(12)],
            vec![json!("three")]
        ]
    );
    assert!(!cursor.is_malformed());
}

#[test]
fn a_malformed_array_is_reported() {
    let mut cursor = ItemCursor::default();

    let items = extract_items(r#"[{"a":1}, oops, {"a":2}]"#, &mut cursor);

    assert_eq!(items, [json!({ "a": 1 })]);
    assert!(cursor.is_malformed());
}

#[test]
fn hostile_texts_take_linear_time_and_bounded_depth() {
    let begin = Instant::now();
    for pattern in [
        "[",
        "{\"a\":",
        "[[x",
        "{x ",
        "[\"",
        "\\",
        "[/*",
        "{a:[",
        "\"[",
        "[1 ",
        "```json\n[x\n",
        "[,",
    ] {
        let text = pattern.repeat(200_000);

        // Printing recurses: too deep a value would overflow the stack here.
        let found = extract_json(&text).map(|value| value.to_string().len());
        let completed = complete_json(&text).map(|value| value.to_string().len());
        extract_items(&text, &mut ItemCursor::default());

        assert!(found.unwrap_or(0) <= text.len() * 2 && completed.unwrap_or(0) <= text.len() * 2);
    }
    // Generous for a slow machine, and hours short of what quadratic time would take.
    assert!(begin.elapsed() < Duration::from_mins(1));
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let inner = leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((".{0,6}", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    prop::collection::vec((".{0,6}", inner), 0..5)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// Whether a completed document has only values of the whole one.
fn is_beginning_of(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::String(part), Value::String(whole)) => whole.starts_with(part.as_str()),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() <= whole.len()
                && part
                    .iter()
                    .zip(whole)
                    .all(|(part, whole)| is_beginning_of(part, whole))
        }
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| is_beginning_of(part, whole))),
        _ => part == whole,
    }
}

proptest! {
    #[test]
    fn a_document_is_found_whole_in_prose(value in document(), pretty in any::<bool>(), before in "[a-z .,:\n]{0,20}", after in ".{0,20}") {
        let json = if pretty { format!("{value:#}") } else { value.to_string() };

        prop_assert_eq!(extract_json(&format!("{before}{json}{after}")), Some(value));
    }

    #[test]
    fn every_beginning_of_a_document_completes_to_a_part_of_it(value in document()) {
        let json = value.to_string();
        for (cut, _) in json.char_indices().skip(1) {
            let completed = complete_json(&json[..cut]).unwrap();
            prop_assert!(is_beginning_of(&completed, &value), "{} completed to {}", &json[..cut], completed);
            prop_assert_eq!(extract_json(&json[..cut]), Some(completed));
        }
    }

    #[test]
    fn items_do_not_depend_on_how_the_text_was_cut(items in prop::collection::vec(document(), 0..5), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let text = Value::from(items.clone()).to_string();
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        ends.sort_unstable();
        ends.push(text.len());
        let mut cursor = ItemCursor::default();

        let found: Vec<_> = ends
            .into_iter()
            .filter(|end| text.is_char_boundary(*end))
            .flat_map(|end| extract_items(&text[..end], &mut cursor))
            .collect();

        prop_assert_eq!(found, items);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\]{}\"'\\\\:,/*a-cntfu0-9.+\\- \n`é😀]{0,80}", position in any::<prop::sample::Index>()) {
        extract_json(&text);
        parse_json(&text);
        complete_json(&text);
        let mut cursor = ItemCursor::default();
        extract_items(text.get(..position.index(text.len() + 1)).unwrap_or_default(), &mut cursor);
        extract_items(&text, &mut cursor);
    }
}
