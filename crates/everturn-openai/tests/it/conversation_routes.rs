//! Conversations that are named before their first turn, and that are deleted.

use everturn_agent::store::Scope;
use everturn_core::stream_log::{MemoryStreamLog, StreamLog, StreamSubject};
use everturn_server::BearerTokens;
use everturn_testkit::ScriptedModel;
use serde_json::json;

use crate::support::{Served, answer};

#[tokio::test]
async fn a_conversation_is_there_before_its_first_turn() {
    let server = Served::answering(["One."]).await;
    let body = json!({"metadata": {"topic": "soup"}});

    let minted = server.post("/conversations", body).await.json();
    let path = format!("/conversations/{}", minted["id"].as_str().unwrap());

    assert_eq!(minted["metadata"], json!({"topic": "soup"}));
    assert_eq!(server.get(&path).await.json(), minted);
    let items = server.get(&format!("{path}/items")).await.json();
    assert_eq!((&items["data"], &items["has_more"]), (&json!([]), &json!(false)));

    let turn = json!({"input": "hi", "conversation": minted["id"]});
    let response = server.respond(turn).await.json();
    assert_eq!(response["conversation"], json!({"id": minted["id"]}));
    assert_eq!(server.get(&path).await.json(), minted);
    let items = server.get(&format!("{path}/items")).await.json();
    assert_eq!(items["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_new_conversation_is_its_callers_and_can_be_deleted() {
    let tokens = BearerTokens::new([("ann", "ann"), ("bob", "bob")]);
    let server = Served::with(ScriptedModel::new(), |server| server.context(tokens)).await;
    let asked = |who: &str, method: &str, path: &str| {
        let request = server.request(method, path).bearer_auth(who);
        answer(if method == "POST" {
            request.json(&json!({}))
        } else {
            request
        })
    };

    let minted = asked("ann", "POST", "/conversations").await.json();
    let path = format!("/conversations/{}", minted["id"].as_str().unwrap());

    assert_eq!(asked("bob", "GET", &path).await.error().0, 404);
    assert_eq!(asked("bob", "DELETE", &path).await.error().0, 404);
    assert_eq!(asked("ann", "GET", &path).await.json(), minted);
    let deleted = asked("ann", "DELETE", &path).await.json();
    assert_eq!(deleted["deleted"], true);
    assert_eq!(asked("ann", "GET", &path).await.error().0, 404);
}

#[tokio::test]
async fn the_streams_of_a_conversation_are_deleted_with_it() {
    let log = MemoryStreamLog::new();
    let model = ScriptedModel::new().replies(["One.", "Two."]);
    let server = Served::with(model, |server| server.stream_log(log.clone())).await;
    for conversation in ["gone", "kept"] {
        let turn = json!({"input": "hi", "conversation": conversation, "stream": true});
        server.respond(turn).await.events();
    }

    answer(server.request("DELETE", "/conversations/gone"))
        .await
        .json();

    let left = async |session: &str| {
        log.erase(&StreamSubject::session(Scope::default().as_str(), session))
            .await
            .unwrap()
    };
    assert_eq!(left("gone").await, 0);
    assert_eq!(left("kept").await, 1);
}
