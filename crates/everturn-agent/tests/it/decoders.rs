//! Reading any patch, input or state of a client returns a value or an error, and never panics.

use proptest::prelude::*;

use crate::fuzz_entry::{patch, read_wire};

/// JSON with the fields of the protocol, and with values that they should not have.
fn json(fields: &'static [&'static str], leaves: &'static [&'static str]) -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(leaves).prop_map(str::to_owned).boxed();
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let member = (prop::sample::select(fields), inner.clone());
        let member = member.prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

fn document() -> impl Strategy<Value = String> {
    json(
        &["a", "b", "", "~", "/", "0", "-"],
        &["null", "1", "1.0", "\"x\"", "[]", "{}"],
    )
}

fn operations() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "leap"]);
    let path = "(/(a|b|0|1|-|~0|~1|~|01)?){0,4}|a";
    let operation = (word, path, path, document()).prop_map(|(word, path, from, value)| {
        format!(r#"{{"op":"{word}","path":"{path}","from":"{from}","value":{value}}}"#)
    });
    prop::collection::vec(operation, 0..8).prop_map(|operations| format!("[{}]", operations.join(",")))
}

proptest! {
    #[test]
    fn any_patch_is_applied_or_refused(one in document(), other in document(), operations in operations()) {
        patch(one.as_bytes(), other.as_bytes(), operations.as_bytes());
    }

    #[test]
    fn anything_on_the_wire_is_read_or_refused(
        text in json(
            &[
                "message", "role", "content", "text", "sessionId", "snapshotId", "state", "custom", "artifacts", "messages",
                "resume", "respond", "restart", "detach", "finishReason", "error", "status", "createdAt", "turnEnd",
                "customPatch", "modelChunk", "artifact", "parentId", "index", "toolResponses",
            ],
            &["null", "1", "true", "\"user\"", "\"completed\"", "\"2026-01-01T00:00:00Z\"", "{}", "[]"],
        ),
    ) {
        read_wire(text.as_bytes());
    }
}
