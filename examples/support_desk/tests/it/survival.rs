//! Acknowledged data survives `kill -9`, and erased data is in no file.

use std::fs;

use everturn::prelude::json;
use tempfile::TempDir;

use crate::support::{ModelServer, Program, calls, files_with, says};

#[tokio::test]
async fn an_approval_outlives_the_process_and_money_goes_back_once() {
    let data = TempDir::new().unwrap();
    let model = ModelServer::start([calls("refund", &json!({"number": 7})), says("You get 39 back.")]).await;
    let desk = Program::start(data.path(), &model.url).await;
    let asked = desk.say("ann", "kettle", "My money back, please.").await;
    let mut answer = asked.result("/message/content/0").clone();
    answer["metadata"] = json!({"resumed": {"approved": true}});
    desk.kill().await;

    let desk = Program::start(data.path(), &model.url).await;
    let resume = json!({"resume": {"restart": [answer]}});
    let answered = desk.turn("carl for ann", "kettle", &resume).await;
    desk.kill().await;
    let desk = Program::start(data.path(), &model.url).await;
    let latest = json!({"data": {"sessionId": "kettle"}});
    let kept = desk.post("ann", "/agents/desk/getSnapshot", &latest).await;

    assert_eq!(asked.result("/finishReason"), "interrupted");
    assert_eq!(answered.text(), "You get 39 back.", "{answered:?}");
    let refunds = fs::read_to_string(data.path().join("refunds.txt")).unwrap();
    assert_eq!(refunds.lines().count(), 1, "{refunds}");
    let messages = kept.result("/state/messages");
    assert_eq!(
        messages.pointer("/0/content/0/text").unwrap(),
        "My money back, please."
    );
    assert_eq!(
        messages.as_array().unwrap().last().unwrap()["content"][0]["text"],
        "You get 39 back."
    );
}

#[tokio::test]
async fn an_erased_customer_is_in_no_byte_of_any_file() {
    const CANARY: &str = "canary-4b1d7e";
    let data = TempDir::new().unwrap();
    let model = ModelServer::start([
        calls("note", &json!({"text": CANARY})),
        says(CANARY),
        says("Hello, Ben."),
    ])
    .await;
    let desk = Program::start(data.path(), &model.url).await;
    // Streams are kept in a separate file, for clients that reconnect.
    let streamed = desk.listen("ann", "secret", CANARY).await;
    desk.say("ben", "other", "I stay.").await;
    let before = format!("{:?}", files_with(data.path(), CANARY));
    assert!(streamed.contains(CANARY), "{streamed}");
    assert!(
        before.contains("sessions.db") && before.contains("streams.db"),
        "{before}"
    );

    let ann = json!({"data": {"principal": "ann"}});
    let path = "/agents/desk/deleteTenant";
    let refused = [
        desk.post("ann", path, &ann).await.status,
        desk.post("carl", path, &ann).await.status,
    ];
    let erased = desk.post("olga", path, &ann).await;
    let left = files_with(data.path(), CANARY);
    let sessions = json!({"data": {}});
    let hers = desk.post("ann", "/agents/desk/listSessions", &sessions).await;
    let his = desk.post("ben", "/agents/desk/listSessions", &sessions).await;
    let tenants = desk.post("olga", "/agents/desk/listTenants", &sessions).await;
    let log = desk.kill().await;

    assert_eq!(refused, [403, 403]);
    assert_eq!(erased.result("/snapshots"), 1, "{erased:?}");
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(hers.result("/sessions"), &json!([]));
    assert_eq!(his.result("/sessions").as_array().map(Vec::len), Some(1));
    assert_eq!(tenants.result("/tenants").as_array().map(Vec::len), Some(1));
    assert!(!log.contains(CANARY), "{log}");
    let left = files_with(data.path(), CANARY);
    assert!(left.is_empty(), "{left:?}");
}
