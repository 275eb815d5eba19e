//! Recorded: what is put into the conversation.

use everturn_ai::{Document, JsonObject, Message, ModelReference, Part, Resource, define_resource};
use serde_json::json;

use crate::generate_support::{comparable, recording, says, scripted, step};

fn with(document: &str, key: &str, value: &str) -> Document {
    Document::from(document).with_metadata(JsonObject::from_iter([(key.to_owned(), json!(value))]))
}

#[tokio::test]
async fn documents() {
    let Some(recorded) = recording("docs_context") else {
        return;
    };
    let (_registry, script, generate) = scripted([step(says("x"))]);

    let docs = [
        with("d1", "ref", "R"),
        with("d2", "id", "I"),
        Document::from("d3"),
    ];
    let response = generate.prompt("p").docs(docs).await.unwrap();

    assert_eq!(comparable(script.last_request()), recorded);
    // Rule: wrappers work on copies. In the recorded runtime the text is in the caller's message from then
    // on.
    assert_eq!(response.messages().first().unwrap().content().len(), 1);
}

#[tokio::test]
async fn a_resource() {
    let Some(recorded) = recording("resource") else {
        return;
    };
    let (registry, script, generate) = scripted([step(says("x"))]);
    let resource = Resource::template(
        "my://{id}",
        |input| async move { Ok(format!("res {}", input.uri)) },
    )
    .unwrap();
    define_resource(&registry, &resource).unwrap();

    generate
        .prompt([Part::text("a"), Part::resource("my://7")])
        .await
        .unwrap();

    assert_eq!(comparable(script.last_request()), recorded);
}

/// The rendering of templates is tested with the prompts; here, that what it gives reaches the model in this
/// order.
#[tokio::test]
async fn a_rendered_prompt() {
    let Some(recorded) = recording("prompt_render") else {
        return;
    };
    let (_registry, script, generate) = scripted([step(says("x"))]);

    generate
        .model(ModelReference::new("programmableModel").with_config(json!({ "temperature": 1 })))
        .config(json!({ "topK": 2 }))
        .system("S e\n")
        .messages([Message::user("h1"), Message::model("h2")])
        .prompt("U v")
        .await
        .unwrap();

    assert_eq!(comparable(script.last_request()), recorded);
}
