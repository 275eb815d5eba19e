//! Failures outside the desk: its model server, and the model's mistakes.

use everturn::prelude::json;
use tempfile::TempDir;

use crate::support::{ModelServer, Program, calls, says};

#[tokio::test]
async fn an_unavailable_model_server_is_reported_to_the_customer_and_the_operator() {
    let data = TempDir::new().unwrap();
    let model = ModelServer::start([]).await;
    let desk = Program::start(data.path(), &model.url).await;

    let failed = desk.say("ann", "kettle", "Is anybody there?").await;
    let metrics = desk.get("/metrics").await;
    model.then(says("Here I am."));
    let again = desk.turn("ann", "kettle", &json!({})).await;
    let log = desk.kill().await;

    assert_eq!(failed.result("/finishReason"), "failed", "{failed:?}");
    assert_eq!(failed.result("/error/status"), "UNAVAILABLE");
    let message = failed.result("/error/message").as_str().unwrap();
    assert!(
        !message.contains("127.0.0.1"),
        "private text leaves the server: {message}"
    );
    assert_eq!(again.text(), "Here I am.", "{again:?}");
    let line = log
        .lines()
        .find(|line| line.contains("ERROR"))
        .unwrap_or_else(|| panic!("no line in {log}"));
    assert!(line.contains("503"), "{line}");
    assert!(!log.contains("Is anybody there?"), "{log}");
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("everturn_turns_total{") && line.contains("failed"));
    assert!(counted.is_some_and(|line| line.ends_with(" 1")), "{metrics}");
}

#[tokio::test]
async fn the_model_corrects_its_mistakes() {
    let data = TempDir::new().unwrap();
    let model = ModelServer::start([
        calls("look_up", &json!({"number": "seven"})),
        calls("search", &json!({})),
        calls("look_up", &json!({"number": 70})),
        calls("look_up", &json!({"number": 7})),
        says("It is a kettle."),
    ])
    .await;
    let desk = Program::start(data.path(), &model.url).await;

    let answered = desk.say("ann", "kettle", "What did I order?").await;

    assert_eq!(answered.text(), "It is a kettle.", "{answered:?}");
    let told = |call: usize| {
        let asked = &model.asked()[call]["messages"];
        asked.as_array().unwrap().last().unwrap()["content"][0].to_string()
    };
    assert!(told(1).contains("number"), "{}", told(1));
    assert!(told(2).contains("search"), "{}", told(2));
    assert!(
        told(3).contains("ask for the number on the receipt"),
        "{}",
        told(3)
    );
    assert!(told(4).contains("a kettle"), "{}", told(4));
}
