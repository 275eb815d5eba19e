//! The echo model repeats the last user message.

use everturn_ai::{Message, Model, ModelRequest, Part};
use everturn_core::{Context, Emitter, Registry};
use everturn_testkit::{Collector, EchoModel};

#[tokio::test]
async fn the_last_user_message_is_repeated_part_for_part() {
    let parts = [Part::text("Leeks?"), Part::media("data:image/png;base64,AA==")];
    let request = ModelRequest::new([
        Message::user("a"),
        Message::user(parts.clone()),
        Message::model("b"),
    ]);

    let response = EchoModel
        .generate(request, Emitter::silent(), Context::new())
        .await
        .unwrap();

    assert_eq!(response.message, Some(Message::model(parts)));
}

#[tokio::test]
async fn a_stream_comes_word_by_word() {
    let chunks = Collector::new();

    let request = ModelRequest::new(Message::user("Leek soup, please"));
    EchoModel
        .generate(request, chunks.emitter(), Context::new())
        .await
        .unwrap();

    let texts: Vec<String> = chunks
        .take()
        .iter()
        .map(|chunk| chunk.text().into_owned())
        .collect();
    assert_eq!(texts, ["Leek ", "soup, ", "please"]);
}

#[tokio::test]
async fn silence_is_answered_with_an_empty_text() {
    let registry = Registry::new();
    let action = EchoModel.register(&registry, "echo").unwrap();

    let response = action.run(ModelRequest::default()).await.unwrap();

    assert_eq!(response.message, Some(Message::model("")));
}
