//! Conversations without failures.

use everturn::prelude::json;
use tempfile::TempDir;

use crate::support::{ModelServer, Program, calls, says};

#[tokio::test]
async fn a_customer_asks_about_an_order_and_returns_later() {
    let data = TempDir::new().unwrap();
    let model = ModelServer::start([
        calls("look_up", &json!({"number": 7})),
        calls("note", &json!({"text": "the kettle is broken"})),
        says("It is a kettle."),
        says("You are welcome."),
    ])
    .await;
    let desk = Program::start(data.path(), &model.url).await;

    let asked = desk.say("ann", "kettle", "What did I order, number 7?").await;
    let thanked = desk.say("ann", "kettle", "Thank you.").await;

    assert_eq!((asked.status, asked.text()), (200, "It is a kettle."));
    assert_eq!(thanked.text(), "You are welcome.");
    let asked = model.asked();
    let told =
        &asked[1]["messages"].as_array().unwrap().last().unwrap()["content"][0]["toolResponse"]["output"];
    assert_eq!(told["goods"], "a kettle");
    let system = asked[3]["messages"][0]["content"][0]["text"].as_str().unwrap();
    assert!(system.contains("The customer is ann."), "{system}");
    assert!(system.contains("the kettle is broken"), "{system}");
    let page = desk.get("/").await;
    assert!(page.contains("<title>Support desk</title>"), "{page}");
}

#[tokio::test]
async fn customers_see_only_their_own() {
    let data = TempDir::new().unwrap();
    let model = ModelServer::start([
        says("Hello, Ann."),
        calls("look_up", &json!({"number": 7})),
        says("Which?"),
    ])
    .await;
    let desk = Program::start(data.path(), &model.url).await;
    let hers = desk.say("ann", "private", "It is a secret.").await;
    let id = json!({"data": {"snapshotId": hers.result("/snapshotId")}});

    let read = desk.post("ben", "/agents/desk/getSnapshot", &id).await;
    let listed = desk
        .post("ben", "/agents/desk/listSessions", &json!({"data": {}}))
        .await;
    let borrowed = desk.post("ben for ann", "/agents/desk/getSnapshot", &id).await;
    let anybody = desk.post("nobody", "/agents/desk/getSnapshot", &id).await;
    let staff = desk.post("carl for ann", "/agents/desk/getSnapshot", &id).await;
    // Another customer's order does not exist for the model either.
    desk.say("ben", "other", "What is order 7?").await;

    assert_eq!(read.body["result"], everturn::prelude::Value::Null, "{read:?}");
    assert_eq!(listed.result("/sessions"), &json!([]), "{listed:?}");
    assert_eq!((borrowed.status, anybody.status), (403, 401));
    assert_eq!(staff.result("/snapshotId"), hers.result("/snapshotId"));
    let asked = model.asked();
    let told = &asked[2]["messages"].as_array().unwrap().last().unwrap()["content"][0];
    assert!(
        told.to_string().contains("there is no order 7 of this customer"),
        "{told}"
    );
}
