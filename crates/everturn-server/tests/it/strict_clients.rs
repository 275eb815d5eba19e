//! Clients that refuse unknown fields see Genkit's protocol alone; callers who ask see what Everturn adds.

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, AgentSession, SnapshotPolicy, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::Registry;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_server::Server;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{connect_async, tungstenite};

use crate::support::agents::{detaches, says, says_in};
use crate::support::{Answer, Served, answer};

const ASK: &str = "x-everturn-extensions";

/// An agent that sends statuses, reports its snapshots, and has a prompt input.
fn cook(registry: &Registry, name: &str, store: Option<MemoryStore>) -> Agent {
    let agent = custom_agent(registry, name, |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.send_status(json!({"step": "chopping"})).await?;
                turn.send_chunk("Leek soup.").await?;
                turn.add_message(Message::model("Leek soup."));
                Ok(FinishReason::Stop)
            })
            .await?;
        Ok(session.result())
    })
    .prompt_input(json!({"tone": "kind"}));
    match store {
        Some(store) => agent
            .snapshots(SnapshotPolicy::always())
            .store(store)
            .define()
            .unwrap(),
        None => agent.define().unwrap(),
    }
}

async fn served() -> Served {
    let registry = Registry::new();
    cook(&registry, "cook", Some(MemoryStore::new()));
    cook(&registry, "forgetful", None);
    Served::of(&registry).await
}

async fn asking(server: &Served, path: &str, body: &Value) -> Answer {
    answer(server.request(path, body).header(ASK, "1")).await
}

/// The names of the fields of an object.
fn fields(value: &Value) -> Vec<&str> {
    let mut fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

/// The names of the fields of a stream's chunks, in order.
fn chunk_fields(events: &[Value]) -> Vec<String> {
    let chunks = events.iter().filter_map(|event| event.get("message"));
    chunks.map(|chunk| fields(chunk).join(" ")).collect()
}

#[tokio::test]
async fn an_answer_has_the_added_fields_only_for_callers_who_ask() {
    let server = served().await;

    let plain = server.post("/agents/cook", &says("soup")).await.result();
    let full = asking(&server, "/agents/cook", &says("soup")).await.result();

    assert_eq!(
        fields(&plain),
        ["finishReason", "message", "sessionId", "snapshotId"]
    );
    assert_eq!(full["snapshotIds"].as_array().unwrap().len(), 2, "{full}");
}

#[tokio::test]
async fn a_stream_has_the_added_chunks_only_for_callers_who_ask() {
    let server = served().await;

    let plain = server.stream("/agents/cook", &says("soup")).await.events();
    let asking = server
        .request("/agents/cook", &says("soup"))
        .header("accept", "text/event-stream")
        .header(ASK, "1");
    let full = answer(asking).await.events();

    assert_eq!(chunk_fields(&plain), ["modelChunk", "turnEnd"]);
    assert!(plain.last().unwrap()["result"].get("snapshotIds").is_none());
    assert_eq!(
        chunk_fields(&full),
        [
            "status",
            "modelChunk",
            "snapshotCreated",
            "turnEnd",
            "snapshotCreated"
        ]
    );
    assert!(full.last().unwrap()["result"].get("snapshotIds").is_some());
}

#[tokio::test]
async fn a_recorded_stream_contains_everything_and_each_reader_gets_the_form_it_requests() {
    let registry = Registry::new();
    cook(&registry, "cook", Some(MemoryStore::new()));
    let server = Served::start(Server::new(&registry).stream_log(MemoryStreamLog::new())).await;
    let first = server.stream("/agents/cook", &says("soup")).await;
    let id = first.header("x-genkit-stream-id").unwrap();
    let again = |asks: &'static str| {
        let request = server.request("/agents/cook", &json!({"data": null}));
        let request = request.header("accept", "text/event-stream").header(ASK, asks);
        answer(request.header("x-genkit-stream-id", id))
    };

    let plain = again("0").await;
    let full = again("1").await.events();

    assert_eq!(chunk_fields(&first.events()), ["modelChunk", "turnEnd"]);
    assert_eq!(plain.body, first.body);
    assert_eq!(chunk_fields(&full)[0], "status");
    assert!(full.last().unwrap()["result"].get("snapshotIds").is_some());
}

#[tokio::test]
async fn a_watcher_of_a_background_run_gets_what_it_asks_for() {
    let server = served().await;
    let run = server.post("/agents/cook", &detaches("soup")).await.result();
    let body = json!({"data": {"snapshotId": run["snapshotId"]}});

    let plain = server.stream("/agents/cook/watch", &body).await.events();
    let asking = server.request("/agents/cook/watch", &body).header(ASK, "1");
    let full = answer(asking.header("accept", "text/event-stream"))
        .await
        .events();

    assert_eq!(chunk_fields(&plain), ["modelChunk", "turnEnd"]);
    assert!(chunk_fields(&full).contains(&"status".to_owned()), "{full:?}");
}

#[tokio::test]
async fn a_snapshot_has_its_place_and_its_prompt_input_only_for_callers_who_ask() {
    let server = served().await;
    server
        .post("/agents/cook", &says_in("soup", &json!({"sessionId": "s"})))
        .await
        .result();
    let read = json!({"data": {"sessionId": "s"}});

    let plain = server.post("/agents/cook/getSnapshot", &read).await.result();
    let full = asking(&server, "/agents/cook/getSnapshot", &read).await.result();

    assert!(
        plain.get("index").is_none() && plain.get("event").is_none(),
        "{plain}"
    );
    assert_eq!(fields(&plain["state"]), ["messages", "sessionId"]);
    assert_eq!(full["turnIndex"], 0, "{full}");
    assert!(full["event"].is_string() && full["index"].is_number(), "{full}");
    assert_eq!(full["state"]["promptInput"], json!({"tone": "kind"}));
}

#[tokio::test]
async fn a_strict_client_that_keeps_the_state_continues_with_the_prompt_input() {
    let server = served().await;
    let plain = server.post("/agents/forgetful", &says("soup")).await.result();

    let init = json!({"state": plain["state"]});
    let next = asking(&server, "/agents/forgetful", &says_in("more", &init))
        .await
        .result();

    assert_eq!(fields(&plain["state"]), ["messages", "sessionId"]);
    assert_eq!(next["state"]["promptInput"], json!({"tone": "kind"}));
}

#[tokio::test]
async fn a_websocket_has_the_added_fields_by_header_or_by_subprotocol() {
    let server = served().await;
    let open = |protocols: &'static str, asks: &'static str| {
        let url = server.url("/agents/cook").replacen("http", "ws", 1);
        let mut request = url.into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("sec-websocket-protocol", protocols.parse().unwrap());
        headers.insert(ASK, asks.parse().unwrap());
        if asks.is_empty() {
            headers.remove(ASK);
        }
        talk(request)
    };

    let plain = open("everturn.v1", "").await;
    let by_header = open("everturn.v1", "1").await;
    let by_subprotocol = open("everturn.v1, everturn.extensions", "").await;

    assert_eq!(chunk_fields(&plain), ["modelChunk", "turnEnd"]);
    assert!(plain.last().unwrap()["result"].get("snapshotIds").is_none());
    for full in [by_header, by_subprotocol] {
        assert_eq!(chunk_fields(&full)[0], "status");
        assert!(full.last().unwrap()["result"].get("snapshotIds").is_some());
    }
}

/// Runs one turn on a WebSocket and returns the received events.
async fn talk(request: tungstenite::handshake::client::Request) -> Vec<Value> {
    let (mut socket, _) = connect_async(request).await.unwrap();
    for frame in [
        json!({"init": {}}),
        json!({"input": says("soup")["data"]}),
        json!({"close": true}),
    ] {
        socket
            .send(tungstenite::Message::text(frame.to_string()))
            .await
            .unwrap();
    }
    let mut told: Vec<Value> = Vec::new();
    while told.last().is_none_or(|last| last.get("result").is_none()) {
        if let tungstenite::Message::Text(text) = socket.next().await.unwrap().unwrap() {
            told.push(serde_json::from_str(&text).unwrap());
        }
    }
    told
}

#[tokio::test]
async fn a_header_that_is_neither_on_nor_off_is_refused() {
    let server = served().await;

    let request = server
        .request("/agents/cook", &says("soup"))
        .header(ASK, "everything");

    answer(request).await.assert_failure(400, "INVALID_ARGUMENT");
}
