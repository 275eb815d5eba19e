//! Reading any input of models and peers returns a value or an error, and never panics.

use proptest::prelude::*;

use crate::fuzz_entry::{match_resource, read_json, read_message};

/// Pieces of which models make JSON, and of which they should not.
fn text() -> impl Strategy<Value = String> {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"a\"",
        "'b'",
        "c",
        "```json\n",
        "```",
        "true",
        "None",
        "nul",
        "-",
        "1e",
        "0x1f",
        ".5",
        "\\",
        "\"",
        "//",
        "/*",
        "*/",
        "\n",
        " ",
        "\u{feff}",
        "Infinity",
        "ü",
        "\\ud83d",
    ];
    let piece =
        prop_oneof![8 => prop::sample::select(pieces.to_vec()).prop_map(str::to_owned), 1 => ".{0,4}"];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Messages with the fields that peers use, and with values that they should not have.
fn message() -> impl Strategy<Value = String> {
    let field = prop::sample::select(vec![
        "role",
        "content",
        "text",
        "media",
        "url",
        "contentType",
        "toolRequest",
        "toolResponse",
        "ref",
        "name",
        "input",
        "output",
        "data",
        "custom",
        "reasoning",
        "resource",
        "metadata",
        "message",
        "messages",
        "docs",
        "config",
        "finishReason",
        "usage",
        "index",
        "aggregated",
    ]);
    let leaf = prop::sample::select(vec![
        "null",
        "1",
        "-0.0",
        "true",
        "\"user\"",
        "\"data:;base64,\"",
        "\"\"",
        "{}",
        "[]",
        "1e400",
    ]);
    let leaf = leaf.prop_map(str::to_owned).boxed();
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let member = (field.clone(), inner.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_of_a_model_is_read_or_not(text in text(), cuts in prop::collection::vec(0_usize..80, 0..6)) {
        read_json(&text, &cuts);
    }

    #[test]
    fn any_message_of_a_peer_is_read_or_refused(message in message()) {
        read_message(message.as_bytes());
    }

    #[test]
    fn any_address_matches_a_template_or_not(template in "[{}a/:.%ü]{0,12}", uri in "[a/:.%ü2?#]{0,16}") {
        match_resource(&template, &uri);
        match_resource("my://{a}/{b}.txt", &format!("my://{uri}.txt"));
    }
}
