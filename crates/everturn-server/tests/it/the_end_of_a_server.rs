//! When a server shuts down, running calls finish, are detached or cancelled, and then it returns.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::SnapshotStatus;
use everturn_agent::store::{Detail, MemoryStore, Scope, SessionStore};
use everturn_core::Registry;
use everturn_server::{AfterGrace, Grace, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::agents::{patient, says};
use crate::support::{Answer, Served};

struct Ending {
    server: Served,
    stream: reqwest::Response,
    gate: CancellationToken,
    store: Arc<MemoryStore>,
}

/// A server with one active turn.
async fn in_the_middle(store: bool, grace: Grace) -> Ending {
    let registry = Registry::new();
    let (gate, rows) = (CancellationToken::new(), Arc::new(MemoryStore::new()));
    patient(&registry, store.then(|| Arc::clone(&rows)), &gate);
    let server = Served::start(Server::new(&registry).grace(grace)).await;
    let stream = server
        .request("/agents/patient", &says("hi"))
        .header("accept", "text/event-stream");
    let mut stream = stream.send().await.unwrap();
    stream.chunk().await.unwrap().unwrap();
    Ending {
        server,
        stream,
        gate,
        store: rows,
    }
}

async fn last_event(stream: reqwest::Response) -> Value {
    let answer = Answer {
        status: stream.status().as_u16(),
        headers: stream.headers().clone(),
        body: stream.text().await.unwrap(),
    };
    answer.events().pop().unwrap()
}

fn impatient(then: AfterGrace) -> Grace {
    Grace {
        period: Duration::from_millis(20),
        then,
    }
}

#[tokio::test]
async fn a_turn_that_ends_in_time_is_delivered_before_the_server_returns() {
    let mut ending = in_the_middle(true, Grace::default()).await;

    ending.server.handle.shut_down();
    ending.gate.cancel();
    let event = last_event(ending.stream).await;
    ending.server.ended().await;

    assert_eq!(event["result"]["finishReason"], "stop");
}

#[tokio::test]
async fn a_server_that_ends_takes_no_more_connections_and_is_not_ready() {
    let mut ending = in_the_middle(true, Grace::default()).await;
    let before = ending.server.get("/readyz").await;

    ending.server.handle.shut_down();
    assert!(ending.server.handle.is_shutting_down());
    ending.gate.cancel();
    last_event(ending.stream).await;
    ending.server.ended().await;

    assert_eq!(before.json(), json!({ "status": "ready" }));
    assert!(
        ending
            .server
            .client
            .get(ending.server.url("/healthz"))
            .send()
            .await
            .is_err()
    );
}

#[tokio::test]
async fn readiness_is_withdrawn_where_the_router_lives_on() {
    let registry = Registry::new();
    let server = Server::new(&registry);
    let handle = server.handle();
    let router = server.router().unwrap();
    let host = Served::start(Server::new(&registry).without_operations().merge(router)).await;

    let before = host.get("/readyz").await;
    handle.shut_down();
    let after = host.get("/readyz").await;

    assert_eq!(before.status, 200);
    after.assert_failure(503, "UNAVAILABLE");
    assert_eq!(host.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_turn_that_outlasts_the_grace_period_is_handed_on_where_it_can_be() {
    let mut ending = in_the_middle(true, impatient(AfterGrace::Detach)).await;

    ending.server.handle.shut_down();
    let event = last_event(ending.stream).await;
    ending.server.ended().await;

    assert_eq!(event["result"]["finishReason"], "detached");
    let id = event["result"]["snapshotId"].as_str().unwrap().into();
    let row = ending
        .store
        .get(&Scope::default(), &id, Detail::Whole)
        .await
        .unwrap();
    assert_eq!(row.unwrap().status, SnapshotStatus::Pending);
}

#[tokio::test]
async fn a_turn_that_cannot_be_handed_on_is_cancelled_and_reported() {
    for (store, then) in [(true, AfterGrace::Cancel)] {
        let mut ending = in_the_middle(store, impatient(then)).await;

        ending.server.handle.shut_down();
        let event = last_event(ending.stream).await;
        ending.server.ended().await;

        assert_eq!(event["error"]["status"], "CANCELLED", "{event}");
    }
}

/// Sends the beginning of a request.
async fn half_a_request(server: &Served, beginning: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.base.trim_start_matches("http://"))
        .await
        .unwrap();
    stream.write_all(beginning.as_bytes()).await.unwrap();
    // Answered behind the beginning, so it has arrived.
    server.get("/healthz").await;
    stream
}

#[tokio::test]
async fn requests_that_have_not_arrived_are_not_waited_for_after_the_grace_period() {
    let grace = Grace {
        period: Duration::from_millis(200),
        then: AfterGrace::Detach,
    };
    let registry = Registry::new();
    registry
        .define_flow("echo", |input: Value| async move { Ok(input) })
        .unwrap();
    let mut server = Served::start(Server::new(&registry).grace(grace)).await;
    let head = "POST /flows/echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let _half_a_head = half_a_request(&server, head).await;
    let mut half_a_body = half_a_request(&server, &format!("{head}content-length: 100\r\n\r\n{{")).await;
    // Larger than a body may be: read and discarded.
    let length = 100_000_000;
    let _too_large = half_a_request(&server, &format!("{head}content-length: {length}\r\n\r\n{{")).await;

    tokio::time::pause();
    let begun = Instant::now();
    server.handle.shut_down();
    server.ended().await;

    let took = begun.elapsed();
    assert!(took >= grace.period && took < Duration::from_secs(5), "{took:?}");
    let mut answer = String::new();
    half_a_body.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}
