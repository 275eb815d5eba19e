//! The server at a path of Everturn's HTTP server: the same callers, tenants and limits as everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_core::{ActionType, Error, JsonCall, Registry, Status};
use everturn_mcp::{HttpServer, McpServer, McpServers};
use everturn_server::{BearerTokens, Grace, Limits, Provided, Server, context_fn};
use everturn_testkit::{Gate, Reply, eventually};
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use serde_json::{Value, json};

use crate::agents_as_tools::scripted;
use crate::support::{Served, Sum, kitchen, run, script};

async fn guarded() -> Served {
    let registry = kitchen();
    let tokens = BearerTokens::new([("alice", "alice-token"), ("bob", "bob-token")]);
    let limits = Limits::default().body_bytes(4096);
    let server = Server::new(&registry).context(tokens).limits(limits);
    Served::start(server.adapter("/mcp", McpServer::new(&registry))).await
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
async fn a_token_that_expires_while_connected_is_exchanged() {
    let current = Arc::new(AtomicUsize::new(1));
    let registry = kitchen();
    let valid = Arc::clone(&current);
    let tokens = context_fn(move |request| {
        let expected = format!("Bearer token-{}", valid.load(Ordering::Relaxed));
        if request.header("authorization") == Some(expected.as_str()) {
            return Ok(Provided::anonymous("all"));
        }
        Err(Error::unauthenticated("the token has expired").with_public())?
    });
    let http = Server::new(&registry).context(tokens);
    let served = Served::start(http.adapter("/mcp", McpServer::new(&registry))).await;
    let fresh = Arc::clone(&current);
    let refreshing = HttpServer::new(&served.url).token_source(move || {
        let token = format!("token-{}", fresh.load(Ordering::Relaxed));
        async move { Ok(token) }
    });
    let (registry, _connections) = client(refreshing).await;
    run(&registry, "s/add", Sum { a: 1, b: 1 }).await.unwrap();

    current.store(2, Ordering::Relaxed);
    let sum = run(&registry, "s/add", Sum { a: 1, b: 2 }).await.unwrap();

    assert_eq!(sum, json!({ "total": 3 }));
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

/// Calls a tool as a client of the stateless version does.
async fn post_stateless(url: &str, token: &str, tool: &str, mut params: Value) -> Value {
    params["name"] = tool.into();
    post_method(url, token, "tools/call", tool, params).await
}

/// Posts a request as a client of the stateless version does; `name` is that of what it is about.
async fn post_method(url: &str, token: &str, method: &str, name: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 3, "method": method, "params": params });
    let request = reqwest::Client::new().post(url).bearer_auth(token);
    let request = request
        .header(CONTENT_TYPE, "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("mcp-name", name);
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

/// Asks for a payment, and answers it as often as there are servers.
async fn answered_at(served: &[&Served], token: &str) -> Vec<Value> {
    let answer = answer_to_payment(served[0], token).await;
    let mut answers = Vec::new();
    for server in served {
        answers.push(post_stateless(&server.url, token, "pay", answer.clone()).await);
    }
    answers
}

/// Asks for a payment. Returns the call with the answer.
async fn answer_to_payment(served: &Served, token: &str) -> Value {
    let asked = post_stateless(&served.url, token, "pay", json!({ "arguments": { "euros": 7 } })).await;
    json!({
        "arguments": { "euros": 7 },
        "inputResponses": { "answer": { "action": "accept", "content": { "by": "Ada" } } },
        "requestState": asked["result"]["requestState"],
    })
}

fn is_refused_as_answered(answer: &Value) -> bool {
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    message.contains("answered before")
}

#[tokio::test]
async fn a_question_is_answered_once() {
    let served = guarded().await;

    let answers = answered_at(&[&served, &served, &served], "alice-token").await;

    assert_eq!(
        answers[0]["result"]["content"][0]["text"],
        "7 paid, allowed by \"Ada\""
    );
    assert!(answers[1..].iter().all(is_refused_as_answered), "{answers:?}");
}

/// Starts a process of several that share a key and this store.
async fn sharing(store: &MemoryStore) -> Served {
    let app = kitchen();
    let key = *b"a secret of at least 32 bytes ..";
    let mcp = McpServer::new(&app).state_key(key, store.clone()).unwrap();
    let tokens = BearerTokens::new([("alice", "alice-token")]);
    Served::start(Server::new(&app).context(tokens).adapter("/mcp", mcp)).await
}

#[tokio::test]
async fn concurrent_answers_to_a_question_count_once() {
    let store = MemoryStore::new();
    let alone = guarded().await;
    let (one, two) = (sharing(&store).await, sharing(&store).await);

    for served in [[&alone, &alone], [&one, &two]] {
        let answer = answer_to_payment(served[0], "alice-token").await;
        let answering = (0..8).map(|number| {
            let url = &served[number % 2].url;
            post_stateless(url, "alice-token", "pay", answer.clone())
        });
        let answers = futures::future::join_all(answering).await;

        let refused = answers.iter().filter(|answer| is_refused_as_answered(answer));
        assert_eq!(refused.count(), 7, "{answers:?}");
        let paid = |answer: &Value| answer["result"]["content"][0]["text"] == "7 paid, allowed by \"Ada\"";
        assert!(answers.iter().any(paid), "{answers:?}");
    }
}

#[tokio::test]
async fn processes_that_share_a_key_and_a_store_take_an_answer_once() {
    let store = MemoryStore::new();
    let (one, two) = (sharing(&store).await, sharing(&store).await);

    let answers = answered_at(&[&one, &two], "alice-token").await;

    assert_eq!(
        answers[0]["result"]["content"][0]["text"],
        "7 paid, allowed by \"Ada\""
    );
    assert!(is_refused_as_answered(&answers[1]), "{answers:?}");
}

/// An application whose agent waits at a gate.
fn with_worker(gate: &Gate) -> Registry {
    let registry = Registry::new();
    let model = script(&registry);
    model.push(Reply::text("Done.").wait(gate));
    everturn_agent::agent(&registry, "worker")
        .system("You work.")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    registry
}

#[tokio::test]
async fn a_task_of_another_tenant_is_not_there() {
    let gate = Gate::new();
    let registry = with_worker(&gate);
    let tokens = BearerTokens::new([("alice", "alice-token"), ("bob", "bob-token")]);
    let mcp = McpServer::new(&registry).task_after(Duration::ZERO);
    let served = Served::start(Server::new(&registry).context(tokens).adapter("/mcp", mcp)).await;
    let work = json!({ "arguments": { "message": "Work." } });
    let begun = post_stateless(&served.url, "alice-token", "worker", work).await;
    let id = begun["result"]["taskId"].as_str().unwrap().to_owned();
    let ask = async |token: &str, method: &str, id: &str| {
        post_method(&served.url, token, method, id, json!({ "taskId": id })).await
    };

    for method in ["tasks/get", "tasks/cancel"] {
        let foreign = ask("bob-token", method, &id).await;
        let missing = ask("bob-token", method, "nothing").await;
        assert_eq!(foreign["error"]["code"], missing["error"]["code"], "{foreign}");
        assert!(foreign["error"]["code"].is_i64(), "{foreign}");
        let message = foreign["error"]["message"].as_str().unwrap();
        assert_eq!(
            message.replace(&id, "nothing"),
            missing["error"]["message"].as_str().unwrap()
        );
    }
    gate.open();
    let mut own = Value::Null;
    eventually("the task has ended", async || {
        own = ask("alice-token", "tasks/get", &id).await["result"].take();
        own["status"] != "working"
    })
    .await;

    assert_eq!(own["status"], "completed", "{own}");
    assert_eq!(own["result"]["content"][0]["text"], "Done.");
}

#[tokio::test]
async fn an_agent_that_outlasts_the_server_continues_in_the_background() {
    let gate = Gate::new();
    let registry = with_worker(&gate);
    let grace = Grace {
        period: Duration::ZERO,
        ..Grace::default()
    };
    let http = Server::new(&registry).grace(grace);
    let served = Served::start(http.adapter("/mcp", McpServer::new(&registry))).await;
    let url = served.url.clone();
    let work = call("worker", &json!({ "message": "Work." }));
    let asked = tokio::spawn(async move { post(&url, &work).await.json::<Value>().await.unwrap() });
    gate.reached().await;

    drop(served);
    let answer = asked.await.unwrap()["result"]["structuredContent"].take();
    gate.open();

    assert_eq!(answer["finishReason"], "detached", "{answer}");
    let snapshots = registry.get(&ActionType::AGENT_SNAPSHOT.key("worker")).unwrap();
    eventually("the run is completed", async || {
        let call = JsonCall::new(json!({ "snapshotId": answer["snapshotId"] }));
        snapshots.run_json(call).await.unwrap()["status"] == "completed"
    })
    .await;
}

#[tokio::test]
async fn a_call_that_asks_twice_is_answered_twice() {
    let (app, model) = scripted();
    model.push(Reply::tool("transfer", 500));
    model.push(Reply::tool("transfer", 600));
    model.push("Both are sent.");
    let served = Served::start(Server::new(&app).adapter("/mcp", McpServer::new(&app))).await;
    let mut params = json!({ "arguments": { "message": "Send 500, then 600." } });

    for euros in [500, 600] {
        let asked = post_stateless(&served.url, "", "banker", params.clone()).await["result"].take();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (name, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(request["params"]["message"], format!("Send {euros}?"));
        params["inputResponses"] = json!({ name: { "action": "accept", "content": { "approved": true } } });
        params["requestState"] = asked["requestState"].clone();
    }
    let done = post_stateless(&served.url, "", "banker", params).await["result"].take();

    assert_eq!(done["content"][0]["text"], "Both are sent.", "{done}");
}
