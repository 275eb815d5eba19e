//! The published cases of the agent protocol, through this client and a server.

use std::net::SocketAddr;
use std::sync::Arc;

use everturn_agent::AgentTransport;
use everturn_agent::store::MemoryStore;
use everturn_client::{Client, RemoteAgent};
use everturn_core::Exposure;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_server::{Layout, Server};
use everturn_testkit::conformance::cases;
use serde_json::Value;
use testbed::{conformance, harness};

/// How an agent is reached.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Http,
    HttpWithKeptStreams,
    WebSocket,
}

/// Serves a harness, runs a case against it from outside, and says what did not hold.
async fn problem(case: &Value, client: &Client, way: Way) -> Option<String> {
    let harness = harness(MemoryStore::new()).unwrap();
    let agent = case["agent"].as_str().unwrap();
    let mut server = Server::new(harness.registry())
        .routes(Layout::default().agent_routes(harness.registry(), agent))
        .without_operations()
        .exposure(Exposure::Full);
    if way == Way::HttpWithKeptStreams {
        server = server.stream_log(MemoryStreamLog::new());
    }
    let server = server.bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let (address, handle) = (server.address(), server.handle());
    let serving = tokio::spawn(server.run());

    let remote =
        |name: &str| -> RemoteAgent { client.agent(&format!("http://{address}/agents/{name}")).unwrap() };
    let socket = match way {
        Way::WebSocket => Some(remote(agent).websocket().await.unwrap()),
        Way::Http | Way::HttpWithKeptStreams => None,
    };
    let remote = harness.reached_by(|name| -> Arc<dyn AgentTransport> {
        match &socket {
            Some(socket) if name == agent => Arc::new(socket.clone()),
            _ => Arc::new(remote(name)),
        }
    });
    let verdict = conformance::run(case, &remote).await;

    handle.shut_down();
    serving.abort();
    let name = case["name"].as_str().unwrap_or_default();
    verdict.err().map(|failure| format!("{name}: {failure}"))
}

#[tokio::test]
async fn every_published_case_holds_over_http() {
    let Some(cases) = cases("agent.yaml") else {
        return;
    };

    let client = Client::new().unwrap();
    let mut problems = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        // Whether the server keeps streams must make no difference, so the cases are shared out between the two.
        let ways = [Way::Http, Way::HttpWithKeptStreams];
        problems.extend(problem(case, &client, ways[number % 2]).await);
    }

    assert!(!cases.is_empty());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn every_published_case_holds_over_a_websocket() {
    let Some(cases) = cases("agent.yaml") else {
        return;
    };

    let client = Client::new().unwrap();
    let mut problems = Vec::new();
    for case in &cases {
        problems.extend(problem(case, &client, Way::WebSocket).await);
    }

    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
