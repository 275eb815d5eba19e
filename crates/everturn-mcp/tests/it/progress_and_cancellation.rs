//! Progress reaches the observer of a call, and cancelling the call reaches the server.

use std::sync::{Arc, Mutex};

use everturn_ai::{Part, ToolContext, ToolRequest, lookup_tool};
use everturn_core::{Context, Emitter, Registry, Status};
use everturn_mcp::{Connections, HttpServer, McpServer, McpServers};
use everturn_server::Server;
use everturn_testkit::{Gate, eventually};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Served, Shared, add_patient, client_of, kitchen};

/// A call that collects what is streamed.
fn watched(context: Context) -> (ToolContext, Shared<Vec<Value>>) {
    let seen: Shared<Vec<Value>> = Arc::default();
    let kept = Arc::clone(&seen);
    let emitter = Emitter::new(move |chunk: everturn_ai::ModelResponseChunk| {
        let kept = Arc::clone(&kept);
        async move {
            let outputs = chunk.content.iter().filter_map(Part::as_tool_response);
            let outputs = outputs.filter_map(|response| response.output.clone());
            Mutex::lock(&kept).unwrap().extend(outputs);
            Ok(())
        }
    });
    let part = Part::from(ToolRequest::new("wait", json!({})));
    (ToolContext::for_request(context, part, emitter), seen)
}

/// A client of a kitchen with a patient tool, with what must live as long.
struct Client {
    registry: Registry,
    left: CancellationToken,
    _connections: Connections,
    _served: Option<Served>,
}

async fn over_a_stream(gate: &Gate) -> Client {
    let kitchen = kitchen();
    let left = add_patient(&kitchen, gate);
    let (registry, connections) = client_of(McpServer::new(&kitchen)).await;
    Client {
        registry,
        left,
        _connections: connections,
        _served: None,
    }
}

async fn over_http(gate: &Gate) -> Client {
    let kitchen = kitchen();
    let left = add_patient(&kitchen, gate);
    let served = Served::start(Server::new(&kitchen).adapter("/mcp", McpServer::new(&kitchen))).await;
    let registry = Registry::new();
    let servers = McpServers::new().http("s", HttpServer::new(&served.url));
    Client {
        _connections: servers.install(&registry).await.unwrap(),
        registry,
        left,
        _served: Some(served),
    }
}

async fn assert_progress(gate: Gate, client: Client) {
    let (context, seen) = watched(Context::new());
    let wait = lookup_tool(&client.registry, "s/wait").await.unwrap();
    let call = tokio::spawn(async move { wait.run_in(Some(json!({})), context).await });

    eventually("progress has arrived", async || !seen.lock().unwrap().is_empty()).await;
    gate.open();
    let output = call.await.unwrap().unwrap().output;

    assert_eq!(output, Some(json!("done")));
    let expected = json!({ "progress": 1.0, "total": 2.0, "message": "half" });
    assert_eq!(seen.lock().unwrap()[0], expected);
}

async fn assert_cancelled(gate: Gate, client: Client) {
    let context = Context::new();
    let (call, _seen) = watched(context.clone());
    let wait = lookup_tool(&client.registry, "s/wait").await.unwrap();
    let call = tokio::spawn(async move { wait.run_in(Some(json!({})), call).await });
    gate.reached().await;

    context.cancel();
    let error = call.await.unwrap().unwrap_err();

    assert_eq!(error.status(), Status::Cancelled);
    eventually("the call has ended", async || client.left.is_cancelled()).await;
}

#[tokio::test]
async fn progress_passes_through_a_stream() {
    let gate = Gate::new();
    let client = over_a_stream(&gate).await;
    assert_progress(gate, client).await;
}

#[tokio::test]
async fn progress_passes_through_http() {
    let gate = Gate::new();
    let client = over_http(&gate).await;
    assert_progress(gate, client).await;
}

#[tokio::test]
async fn cancelling_reaches_a_server_at_a_stream() {
    let gate = Gate::new();
    let client = over_a_stream(&gate).await;
    assert_cancelled(gate, client).await;
}

#[tokio::test]
async fn cancelling_reaches_a_server_over_http() {
    let gate = Gate::new();
    let client = over_http(&gate).await;
    assert_cancelled(gate, client).await;
}
