//! Servers and clients that go away.
//!
//! A server that dies in the middle of a call fails that call, and the next one reaches its successor.

use std::sync::{Arc, Mutex};

use everturn_core::{Registry, Status};
use everturn_mcp::{McpServer, McpServers};
use everturn_testkit::{Gate, eventually};
use serde_json::json;
use tokio::task::AbortHandle;

use crate::support::{Sum, add_patient, kitchen, run};

/// A server whose connections can be cut, as they are when its process is killed.
fn mortal(server: McpServer) -> (McpServers, Arc<Mutex<Vec<AbortHandle>>>) {
    let lives: Arc<Mutex<Vec<AbortHandle>>> = Arc::default();
    let begun = Arc::clone(&lives);
    let servers = McpServers::new().stream("s", move || {
        let (ours, mut near) = tokio::io::duplex(64 * 1024);
        let (mut far, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(server.clone().serve_stream(theirs));
        let life = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        begun.lock().unwrap().push(life.abort_handle());
        async move { Ok(ours) }
    });
    (servers, lives)
}

#[tokio::test]
async fn an_active_call_fails_and_the_next_one_works() {
    let gate = Gate::new();
    let kitchen = kitchen();
    add_patient(&kitchen, &gate);
    let (servers, lives) = mortal(McpServer::new(&kitchen));
    let registry = Registry::new();
    let _connections = servers.install(&registry).await.unwrap();
    let caller = registry.clone();
    let call = tokio::spawn(async move { run(&caller, "s/wait", json!({})).await });
    gate.reached().await;

    lives.lock().unwrap()[0].abort();
    let error = call.await.unwrap().unwrap_err();
    let sum = run(&registry, "s/add", Sum { a: 1, b: 2 }).await.unwrap();

    assert_eq!(error.status(), Status::Unavailable);
    assert!(error.message().contains("MCP server 's' went away"), "{error}");
    assert_eq!(sum, json!({ "total": 3 }));
    assert_eq!(lives.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_that_died_between_calls_is_not_noticed() {
    let (servers, lives) = mortal(McpServer::new(&kitchen()));
    let registry = Registry::new();
    let connections = servers.install(&registry).await.unwrap();

    lives.lock().unwrap()[0].abort();
    eventually("the connection is gone", async || {
        connections.connected().await.is_empty()
    })
    .await;
    let sum = run(&registry, "s/add", Sum { a: 1, b: 2 }).await.unwrap();

    assert_eq!(sum, json!({ "total": 3 }));
}

#[tokio::test]
async fn the_connection_ends_with_the_application() {
    let (servers, lives) = mortal(McpServer::new(&kitchen()));
    let registry = Registry::new();
    let connections = servers.install(&registry).await.unwrap();

    drop((registry, connections));

    let life = lives.lock().unwrap()[0].clone();
    eventually("the server has ended", async || life.is_finished()).await;
}

#[tokio::test]
async fn a_client_may_disconnect_without_a_message() {
    let (ours, theirs) = tokio::io::duplex(1024);
    drop(ours);

    McpServer::new(&kitchen()).serve_stream(theirs).await.unwrap();
}
