//! Only public text leaves the server, except in development.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_core::{Error, Exposure, Registry};
use everturn_server::Server;
use serde_json::{Value, json};

use crate::support::Served;
use crate::support::agents::{parrot, says, says_in};

const SECRET: &str = "the secret is 42";

fn registry() -> Registry {
    let registry = Registry::new();
    parrot(&registry, Some(Arc::new(MemoryStore::new())));
    let failing = |public: bool| async move {
        let error = Error::failed_precondition(SECRET);
        Err::<(), _>(
            if public {
                error.with_public_message("not today")
            } else {
                error
            }
            .into(),
        )
    };
    registry.define_flow("failing", failing).unwrap();
    registry
}

#[tokio::test]
async fn a_private_message_becomes_the_label_of_its_status() {
    let server = Served::start(Server::new(&registry()).exposure(Exposure::Public)).await;

    let private = server.post("/flows/failing", &json!({ "data": false })).await;
    let public = server.post("/flows/failing", &json!({ "data": true })).await;

    private.assert_failure(400, "FAILED_PRECONDITION");
    assert_eq!(private.json()["message"], "failed precondition");
    assert_eq!(public.json()["message"], "not today");
}

#[tokio::test]
async fn in_development_private_text_is_sent() {
    let server = Served::start(Server::new(&registry()).exposure(Exposure::Full)).await;

    let answer = server.post("/flows/failing", &json!({ "data": false })).await;
    let failed = server.post("/agents/parrot", &says("fail")).await.result();

    assert_eq!(answer.json()["message"], SECRET);
    assert_eq!(failed["error"]["message"], SECRET);
}

#[tokio::test]
async fn a_failed_turn_keeps_its_private_text_to_itself() {
    let server = Served::start(Server::new(&registry()).exposure(Exposure::Public)).await;
    let mut in_background = says("fail");
    in_background["data"]["detach"] = true.into();

    let unary = server.post("/agents/parrot", &says("fail")).await;
    let streamed = server.stream("/agents/parrot", &says("fail")).await;
    let detached = server.post("/agents/parrot", &in_background).await.result();
    let row = failed_row(&server, &detached["snapshotId"]).await;

    assert_eq!(
        unary.result()["error"],
        json!({ "status": "INTERNAL", "message": "internal error" })
    );
    assert!(!streamed.body.contains(SECRET), "{streamed:?}");
    assert_eq!(row["error"]["status"], "INTERNAL");
    assert!(!row.to_string().contains(SECRET), "{row}");
}

/// Asks for a row until it has failed.
async fn failed_row(server: &Served, id: &Value) -> Value {
    let request = json!({ "data": { "snapshotId": id } });
    loop {
        let row = server.post("/agents/parrot/getSnapshot", &request).await.result();
        if row["status"] == "failed" {
            return row;
        }
        assert_eq!(row["status"], "pending", "{row}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn errors_do_not_reveal_how_an_agent_is_configured() {
    let server = Served::start(Server::new(&registry()).exposure(Exposure::Public)).await;

    let answer = server
        .post("/agents/parrot", &says_in("hi", &json!({ "state": {} })))
        .await;

    answer.assert_failure(400, "FAILED_PRECONDITION");
    assert_eq!(answer.json()["message"], "failed precondition");
}

#[tokio::test]
async fn the_fault_of_an_input_is_public_to_its_sender_only() {
    let registry = Registry::new();
    let inner = registry
        .define_flow("inner", |n: u8| async move { Ok(n) })
        .unwrap();
    let action: Arc<dyn everturn_core::DynAction> = Arc::new(inner);
    let outer = move |text: String| {
        let action = Arc::clone(&action);
        async move { Ok(action.run_json(everturn_core::JsonCall::new(text)).await?) }
    };
    registry.define_flow("outer", outer).unwrap();
    let server = Served::start(Server::new(&registry).exposure(Exposure::Public)).await;

    let own = server.post("/flows/inner", &json!({ "data": "x" })).await;
    let inside = server.post("/flows/outer", &json!({ "data": "x" })).await;

    own.assert_failure(400, "INVALID_ARGUMENT");
    assert!(
        own.json()["message"].as_str().unwrap().contains("/flow/inner"),
        "{own:?}"
    );
    inside.assert_failure(400, "INVALID_ARGUMENT");
    assert_eq!(inside.json()["message"], "invalid argument");
}
