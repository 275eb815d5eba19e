//! Gemini's own data is sent back unchanged, from a conversation that was stored in between.

use everturn_core::Status;
use everturn_models::gemini::Gemini;
use serde_json::{Value, json};

use crate::gemini_server::{Answer, start_strict};
use crate::round_trip::{asked_and_thanked, refusal_of_change};

const MODEL: &str = "gemini/gemini-3-pro";

fn call(id: Option<&str>, n: u32, signature: Option<&str>) -> Value {
    let mut part = json!({ "functionCall": { "name": "look", "args": { "n": n } } });
    if let Some(id) = id {
        part["functionCall"]["id"] = json!(id);
    }
    if let Some(signature) = signature {
        part["thoughtSignature"] = json!(signature);
    }
    part
}

#[tokio::test]
async fn signatures_survive_parallel_calls_several_rounds_and_a_store() {
    let server = start_strict([
        Answer::of([
            json!({ "text": "I look.", "thought": true }),
            json!({ "text": "Looking …" }),
            call(Some("f1"), 1, Some("c2lnLV8=")),
            call(Some("f2"), 2, None),
        ]),
        Answer::of([call(None, 3, Some("c2VxdWVudGlhbA=="))]),
        Answer::of([
            json!({ "text": "Leeks." }),
            json!({ "text": "", "thoughtSignature": "ZW1wdHk=" }),
        ]),
        Answer::of([json!({ "text": "You are welcome." })]),
    ])
    .await;

    let plugin = Gemini::new("key").base_url(server.url());
    let (first, second) = asked_and_thanked(plugin, MODEL).await;

    assert_eq!(first.text(), "Leeks.");
    assert_eq!(second.text(), "You are welcome.");
    let last = server.last_body();
    assert_eq!(last["contents"][1]["parts"][1]["thoughtSignature"], "c2lnLV8=");
    assert!(
        last["contents"][3]["parts"][0]["functionCall"]
            .get("id")
            .is_none()
    );
    assert_eq!(
        last["contents"][5]["parts"][1],
        json!({ "text": "", "thoughtSignature": "ZW1wdHk=" })
    );
}

#[tokio::test]
async fn a_changed_signature_is_refused_by_the_server() {
    let server = start_strict([Answer::of([
        json!({ "text": "Soup.", "thoughtSignature": "c2ln" }),
    ])])
    .await;

    let plugin = Gemini::new("key").base_url(server.url());
    let error = refusal_of_change(plugin, MODEL, "c2ln", "c2lO").await;

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("signature is not valid"), "{error}");
    assert_eq!(error.details().unwrap()["code"], "INVALID_ARGUMENT");
}
