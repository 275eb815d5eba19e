//! A trace server that is absent, slow or broken has no effect on the program.

use std::time::Duration;

use everturn_dev::Environment;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{TraceServer, program, run_action, started};

async fn runs_with(server: String) {
    let environment = Environment {
        telemetry_server: Some(server),
        realtime: true,
        ..Environment::default()
    };
    let (tools, _folder) = started(&program(), environment).await;
    for _ in 0..3 {
        let ran = run_action(
            tools.url().unwrap(),
            json!({ "key": "/flow/hello", "input": "Ann" }),
        )
        .await;
        assert_eq!(ran.json()["result"], "Hello, Ann!");
    }
}

#[tokio::test]
async fn an_absent_server() {
    runs_with("http://localhost:9".to_owned()).await;
}

#[tokio::test]
async fn an_address_that_is_none() {
    runs_with("nonsense".to_owned()).await;
}

#[tokio::test]
async fn a_server_that_answers_garbage() {
    let server = TraceServer::answering("garbage\r\n\r\n").await;
    runs_with(server.url.clone()).await;
}

#[tokio::test]
async fn a_server_that_refuses_every_post() {
    let server = TraceServer::answering("HTTP/1.1 500 Oh no\r\ncontent-length: 0\r\n\r\n").await;
    runs_with(server.url.clone()).await;
}

#[tokio::test]
async fn no_post_follows_the_first_to_a_server_that_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let began = tokio::time::Instant::now();

    runs_with(format!("http://{}", listener.local_addr().unwrap())).await;

    // One post is awaited; the others are not tried.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[tokio::test]
async fn spans_that_find_no_room_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let environment = Environment {
        telemetry_server: Some(format!("http://{}", listener.local_addr().unwrap())),
        ..Environment::default()
    };
    let registry = program();
    let hello = registry
        .define_flow("again", |n: u32| async move { Ok(n) })
        .unwrap();
    let (tools, _folder) = started(&registry, environment).await;

    // Nothing empties the queue: this loop does not wait, and the server does not respond.
    for n in 0..10_000 {
        hello.run(n).await.unwrap();
    }

    assert!(tools.dropped() > 1_000, "{}", tools.dropped());
}
