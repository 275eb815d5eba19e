//! A conversation through several doors, on a store that outlives its server.

use everturn_client::RemoteAgent;
use everturn_sqlite::SqliteStore;
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::support::{Served, call, first, user};

#[tokio::test]
async fn a_conversation_goes_through_every_door() {
    let model = ScriptedModel::new().replies([
        Reply::text("One."),
        call("look", json!({})),
        Reply::text("Seen."),
        call("ask", json!({})),
        Reply::text("Three it is."),
        Reply::text("Bye."),
    ]);
    let server = Served::with(model, |server| server).await;
    let native: RemoteAgent = RemoteAgent::new(&format!("{}/agents/keeper", server.base)).unwrap();

    // Genkit's protocol begins,
    native.chat().resume("t").run("1").await.unwrap();
    // AG-UI continues with a tool and a question,
    let mut held = server.thread().await;
    assert_eq!(held[1]["content"], "One.");
    held.push(user("u2", "look"));
    assert_eq!(server.run("r1", json!(held)).await.text(), "Seen.");
    held = server.thread().await;
    held.push(user("u3", "ask"));
    let asking = server.run("r2", json!(held)).await;
    let call = first(&asking.events(), "TOOL_CALL_START")["toolCallId"].clone();
    assert_eq!(asking.end()["outcome"]["interrupts"][0]["id"], call);
    // Responses answers the question,
    let answer = json!({
        "model": "keeper", "conversation": "t",
        "input": [{"type": "function_call_output", "call_id": call, "output": "{\"counter\": 3}"}],
    });
    let answered: Value = server.post("/v1/responses", &answer).await.json();
    assert_eq!(answered["status"], "completed", "{answered}");
    // and Genkit's protocol ends it.
    let reply = native.chat().resume("t").run("bye").await.unwrap();

    assert_eq!(reply.text(), "Bye.");
    let asked = server.asked();
    assert_eq!(
        asked[1..4],
        ["user: 1", "model: One.", "user: look"].map(str::to_owned)
    );
    assert_eq!(
        asked[8..10],
        ["model: [call ask]", "tool: [result {\"counter\":3}]"].map(str::to_owned)
    );
    assert_eq!(server.thread().await.len(), 12);
}

#[tokio::test]
async fn a_thread_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threads.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let first_server = Served::on(store.clone(), ScriptedModel::new().reply("One."), |server| server).await;
    first_server.run("r1", json!([user("u1", "1")])).await.end();
    let held = first_server.thread().await;
    drop(first_server);
    store.close().await.unwrap();

    let store = SqliteStore::open(&path).await.unwrap();
    let server = Served::on(store, ScriptedModel::new().reply("Two."), |server| server).await;
    assert_eq!(server.thread().await, held);
    let repeated = server.run("r1", json!([user("u1", "1")])).await;
    let mut messages = held;
    messages.push(user("u2", "2"));
    server.run("r2", json!(messages)).await.end();

    // A run is made once, also if its stream is no longer kept.
    assert_eq!(repeated.error().1, "ABORTED");
    assert_eq!(
        server.asked()[1..],
        ["user: 1", "model: One.", "user: 2"].map(str::to_owned)
    );
}
