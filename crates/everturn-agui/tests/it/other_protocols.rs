//! A conversation through several adapters, on a store that outlives its server.

use everturn_client::RemoteAgent;
use everturn_sqlite::SqliteStore;
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::support::{Counter, Served, call, first, user};

/// Returns the state of thread `t` of the agent `tally`, as a connecting client receives it.
async fn state(server: &Served) -> Value {
    first(&server.connect("tally").await, "STATE_SNAPSHOT")["snapshot"].clone()
}

#[tokio::test]
async fn a_conversation_goes_through_every_protocol_with_a_tool_a_state_and_a_question() {
    let model = ScriptedModel::new().replies([
        call("count", json!({})),
        Reply::text("One."),
        call("count", json!({})),
        Reply::text("Two."),
        call("ask", json!({})),
        call("count", json!({})),
        Reply::text("Three."),
        Reply::text("Bye."),
    ]);
    let server = Served::with(model, |server| server).await;
    let url = format!("{}/agents/tally", server.base);
    let native: RemoteAgent<Counter> = RemoteAgent::new(&url).unwrap();
    let run = async |run: &str, message: Value| {
        let messages = json!([message]);
        server.run_of("tally", run, messages, json!({})).await
    };

    // Genkit's protocol begins,
    native.chat().resume("t").run("count").await.unwrap();
    assert_eq!(state(&server).await, json!({"counter": 1}));
    // AG-UI continues with the state and a question,
    let counted = run("r1", user("u2", "count again")).await;
    assert_eq!(counted.text(), "Two.");
    let told: Vec<Value> = counted
        .events()
        .into_iter()
        .filter(|event| event["type"] == "STATE_SNAPSHOT")
        .map(|event| event["snapshot"].clone())
        .collect();
    assert_eq!(told, [json!({"counter": 1}), json!({"counter": 2})]);
    let asking = run("r2", user("u3", "ask")).await;
    let call = asking.end()["outcome"]["interrupts"][0]["id"].clone();
    // Responses answers the question, whereupon the tool counts once more,
    let answer = json!({
        "model": "tally", "conversation": "t",
        "input": [{"type": "function_call_output", "call_id": call, "output": "{\"counter\": 9}"}],
    });
    let answered = server.post("/v1/responses", &answer).await.json();
    assert_eq!(answered["output"][0]["type"], "mcp_call", "{answered}");
    assert_eq!(answered["output"][1]["content"][0]["text"], "Three.");
    // and Genkit's protocol ends it.
    let mut chat = native.chat().resume("t").open().await.unwrap();
    let reply = chat.send("bye").await.unwrap().output().await.unwrap();

    assert_eq!(reply.text(), "Bye.");
    assert_eq!(state(&server).await, json!({"counter": 3}));
    let asked = server.asked();
    assert_eq!(asked[0], "system: Counted: 3.");
    let said: Vec<&String> = asked.iter().filter(|line| line.starts_with("user")).collect();
    assert_eq!(
        said,
        ["user: count", "user: count again", "user: ask", "user: bye"]
    );
    assert!(
        asked.contains(&"tool: [result {\"counter\":9}]".to_owned()),
        "{asked:?}"
    );
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
