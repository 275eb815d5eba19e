//! The published cases of the agent protocol, through this client and a server, over the in-memory store and
//! over PostgreSQL.

use std::net::SocketAddr;
use std::sync::Arc;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_agent::{AgentTransport, SessionId};
use everturn_client::{Client, RemoteAgent};
use everturn_core::Exposure;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_postgres::PostgresStore;
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

/// Serves a harness, runs a case against it from outside, and returns the failed expectations.
async fn problem(case: &Value, client: &Client, way: Way, store: Arc<dyn SessionStore>) -> Option<String> {
    let harness = harness(store).unwrap();
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

fn memory() -> Arc<dyn SessionStore> {
    Arc::new(MemoryStore::new())
}

/// Runs every case, each on a separate store, alternating between the transports.
async fn every_case_holds(ways: &[Way], store: impl AsyncFn() -> Arc<dyn SessionStore>) {
    let Some(cases) = cases("agent.yaml") else {
        return;
    };

    let client = Client::new().unwrap();
    let mut problems = Vec::new();
    for (case, way) in cases.iter().zip(ways.iter().cycle()) {
        problems.extend(problem(case, &client, *way, store().await).await);
    }

    assert!(!cases.is_empty());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn every_published_case_holds_over_http() {
    // The result must not depend on kept streams, so the cases are divided between both settings.
    every_case_holds(&[Way::Http, Way::HttpWithKeptStreams], async || memory()).await;
}

#[tokio::test]
async fn every_published_case_holds_over_a_websocket() {
    every_case_holds(&[Way::WebSocket], async || memory()).await;
}

/// The cases are divided between the transports, because each case needs separate tables.
#[tokio::test]
async fn every_published_case_holds_over_http_and_websockets_on_postgres() {
    let Ok(url) = std::env::var("EVERTURN_TEST_POSTGRES") else {
        println!("skipped: EVERTURN_TEST_POSTGRES names no server; ./test starts one");
        return;
    };
    let store = async || {
        let schema = SessionId::generate().as_str().replace('-', "_");
        let options = PostgresStore::options(&url).schema(format!("http_{schema}"));
        let store = options.connections(4).open().await.unwrap();
        Arc::new(store) as Arc<dyn SessionStore>
    };

    let ways = [Way::Http, Way::HttpWithKeptStreams, Way::WebSocket];
    every_case_holds(&ways, store).await;
}
