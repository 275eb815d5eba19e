//! The server at a path of Everturn's HTTP server: the same callers, tenants and limits as everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_core::{Registry, Status};
use everturn_mcp::{HttpServer, McpServer, McpServers};
use everturn_server::{BearerTokens, Limits, Server};
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use serde_json::{Value, json};

use crate::support::{Served, Sum, kitchen, run};

async fn guarded() -> Served {
    let registry = kitchen();
    let tokens = BearerTokens::new([("alice", "alice-token"), ("bob", "bob-token")]);
    let limits = Limits::default().body_bytes(4096);
    let server = Server::new(&registry).context(tokens).limits(limits);
    Served::start(server.door("/mcp", McpServer::new(&registry))).await
}

async fn client(server: HttpServer) -> (Registry, everturn_mcp::Connections) {
    let registry = Registry::new();
    let connections = McpServers::new()
        .http("s", server)
        .install(&registry)
        .await
        .unwrap();
    (registry, connections)
}

/// Posts a message as a client of an older version does.
async fn post(url: &str, message: &Value) -> reqwest::Response {
    let request = reqwest::Client::new()
        .post(url)
        .header(CONTENT_TYPE, "application/json");
    let request = request.header("accept", "application/json, text/event-stream");
    request.body(message.to_string()).send().await.unwrap()
}

fn initialize() -> Value {
    let client = json!({ "name": "old", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

fn call(tool: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

#[tokio::test]
async fn the_stateless_version_is_spoken() {
    let served = Served::kitchen().await;
    let (registry, _connections) = client(HttpServer::new(&served.url)).await;

    let sum = run(&registry, "s/add", Sum { a: 2, b: 3 }).await.unwrap();

    assert_eq!(sum, json!({ "total": 5 }));
}

#[tokio::test]
async fn the_handshake_of_older_versions_is_spoken() {
    let served = Served::kitchen().await;

    let begun = post(&served.url, &initialize()).await;
    assert!(begun.headers().get("mcp-session-id").is_none());
    let begun: Value = begun.json().await.unwrap();
    let called: Value = post(&served.url, &call("add", &json!({ "a": 2, "b": 3 })))
        .await
        .json()
        .await
        .unwrap();
    let asked: Value = post(&served.url, &call("pay", &json!({ "euros": 7 })))
        .await
        .json()
        .await
        .unwrap();

    assert_eq!(begun["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(called["result"]["structuredContent"], json!({ "total": 5 }));
    assert_eq!(asked["result"]["isError"], true);
    let question = asked["result"]["content"][0]["text"].as_str().unwrap();
    assert!(question.contains("Pay 7?"), "{question}");
}

#[tokio::test]
async fn a_caller_without_a_good_token_is_refused() {
    let served = guarded().await;

    for server in [
        HttpServer::new(&served.url),
        HttpServer::new(&served.url).bearer("wrong"),
    ] {
        let (registry, connections) = client(server).await;
        let refused = run(&registry, "s/add", Sum { a: 1, b: 1 }).await.unwrap_err();

        assert!(connections.connected().await.is_empty());
        assert_eq!(refused.status(), Status::Unauthenticated, "{refused}");
    }
}

#[tokio::test]
async fn a_refused_token_is_exchanged() {
    let served = guarded().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let refreshing = HttpServer::new(&served.url).token_source(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move { Ok(if number == 0 { "expired" } else { "alice-token" }.to_owned()) }
    });

    let (registry, _connections) = client(refreshing).await;
    let sum = run(&registry, "s/add", Sum { a: 1, b: 1 }).await.unwrap();

    assert_eq!(sum, json!({ "total": 2 }));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_session_of_another_tenant_is_not_there() {
    let served = guarded().await;
    let (alice, _a) = client(HttpServer::new(&served.url).bearer("alice-token")).await;
    let (bob, _b) = client(HttpServer::new(&served.url).bearer("bob-token")).await;

    let secret = run(&alice, "s/parrot", json!({ "message": "my secret" }))
        .await
        .unwrap();
    let foreign = json!({ "message": "hello", "sessionId": secret["sessionId"] });
    let foreign = run(&bob, "s/parrot", foreign).await.unwrap();
    let own = json!({ "message": "and?", "sessionId": secret["sessionId"] });
    let own = run(&alice, "s/parrot", own).await.unwrap();

    // Bob began a conversation of his own under that id; Alice's went on from where it was.
    assert_eq!(foreign["sessionId"], secret["sessionId"]);
    assert_ne!(foreign["snapshotId"], secret["snapshotId"]);
    assert_eq!(own["finishReason"], "stop");
}

#[tokio::test]
async fn what_is_too_large_or_malformed_is_refused() {
    let served = guarded().await;
    let send = async |body: String| {
        let request = reqwest::Client::new()
            .post(&served.url)
            .bearer_auth("alice-token");
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.header("accept", "application/json, text/event-stream");
        request.body(body).send().await.unwrap().status().as_u16()
    };

    assert_eq!(send(call("add", &json!("x".repeat(5000))).to_string()).await, 413);
    assert!([400, 415, 422].contains(&send("{".to_owned()).await));
    assert!([400, 415, 422].contains(&send("{}".to_owned()).await));
    let nested = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    assert!([400, 415, 422].contains(&send(nested).await));
    assert_eq!(send(initialize().to_string()).await, 200);
}

#[tokio::test]
async fn a_page_in_a_browser_cannot_reach_it() {
    let served = Served::kitchen().await;
    let send = async |name, value| {
        let request = reqwest::Client::new().post(&served.url).header(name, value);
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.header("accept", "application/json, text/event-stream");
        request
            .body(initialize().to_string())
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };

    assert_eq!(send(ORIGIN, "https://evil.example").await, 403);
    assert_eq!(send(HOST, "evil.example").await, 403);
}

/// Posts a request as a client of the stateless version does.
async fn post_stateless(url: &str, token: &str, tool: &str, mut params: Value) -> Value {
    params["name"] = tool.into();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params });
    let request = reqwest::Client::new().post(url).bearer_auth(token);
    let request = request
        .header(CONTENT_TYPE, "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool);
    request
        .body(message.to_string())
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_questions_state_is_of_use_for_the_same_call_of_the_same_caller_only() {
    let served = guarded().await;
    let order = json!({ "euros": 7 });
    let asked = post_stateless(&served.url, "alice-token", "pay", json!({ "arguments": order })).await;
    let state = &asked["result"]["requestState"];
    let answers = json!({ "answer": { "action": "accept", "content": { "by": "Ada" } } });
    let answer = |euros: u32| json!({ "arguments": { "euros": euros }, "inputResponses": answers, "requestState": state });

    let of_bob = post_stateless(&served.url, "bob-token", "pay", answer(7)).await;
    let of_more = post_stateless(&served.url, "alice-token", "pay", answer(700)).await;
    let of_alice = post_stateless(&served.url, "alice-token", "pay", answer(7)).await;

    assert_eq!(asked["result"]["resultType"], "input_required");
    for refused in [of_bob, of_more] {
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert_eq!(
        of_alice["result"]["content"][0]["text"],
        "7 paid, allowed by \"Ada\""
    );
}
