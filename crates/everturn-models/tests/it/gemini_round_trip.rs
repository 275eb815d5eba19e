//! What Gemini gave comes back to it unchanged, from a conversation that was stored in between.

use std::sync::Arc;

use everturn_ai::{Generate, Message, ModelRequest, Tool, ToolContext};
use everturn_core::{Registry, Status};
use everturn_models::gemini::Gemini;
use serde_json::{Value, json};

use crate::asking::ask;
use crate::gemini_server::{Answer, start_strict};

const MODEL: &str = "gemini/gemini-3-pro";

fn look() -> Tool {
    Tool::new("look", "Looks.", |_: Value, _: ToolContext| async {
        Ok(json!({ "seen": "leeks" }))
    })
}

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
    let registry = Registry::new();
    registry
        .install(Arc::new(Gemini::new("key").base_url(server.url())))
        .unwrap();

    let first = Generate::new(&registry)
        .model(MODEL)
        .prompt("What is there?")
        .tool(look())
        .await
        .unwrap();
    let text = serde_json::to_string(&first.messages()).unwrap();
    let history: Vec<Message> = serde_json::from_str(&text).unwrap();
    let second = Generate::new(&registry)
        .model(MODEL)
        .messages(history)
        .prompt("Thank you.")
        .tool(look())
        .await
        .unwrap();

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
    let question = Message::user("Leeks?");
    let answer = ask(plugin.clone(), MODEL, ModelRequest::new(question.clone()))
        .await
        .result
        .unwrap();
    let answer = serde_json::to_string(&answer.message).unwrap();
    let forged: Message = serde_json::from_str(&answer.replace("c2ln", "c2lO")).unwrap();

    let request = ModelRequest::new([question, forged, Message::user("And?")]);
    let error = ask(plugin, MODEL, request).await.result.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("signature is not valid"), "{error}");
    assert_eq!(error.details().unwrap()["code"], "INVALID_ARGUMENT");
}
