//! A server in this process: the default paths of agents, callers with tokens, operators, quotas, MCP, and
//! the spans of all of it. It is one test, because the subscriber receives the spans of the whole process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use everturn_agent::store::MemoryStore;
use everturn_core::{Registry, SpanListener, SpanRecord, listen_to_spans};
use everturn_mcp::McpServer;
use everturn_server::{ArchiveAccess, BearerTokens, Layout, Limits, Server};
use everturn_testkit::Reply;
use serde_json::{Value, json};
use testbed::Harness;

use super::assert_recorded;
use super::client::{Client, EXTENSIONS, says, says_at};

const ALICE: (&str, &str) = ("authorization", "Bearer alice-token");
const BOB: (&str, &str) = ("authorization", "Bearer bob-token");

/// The names of the attributes, events and kinds of spans, by the names of the spans.
#[derive(Default)]
struct Spans(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl SpanListener for Spans {
    fn started(&self, _span: &SpanRecord) {}

    fn ended(&self, span: &Arc<SpanRecord>) {
        let mut spans = self.0.lock().unwrap();
        let seen = spans.entry(span.name.clone()).or_default();
        for (name, value) in &span.attributes {
            let kind = matches!(name.as_str(), "genkit:type" | "genkit:metadata:subtype");
            seen.insert(if kind {
                format!("{name} = {value}")
            } else {
                name.clone()
            });
        }
        seen.extend(span.events.iter().map(|event| format!("event {}", event.name)));
    }
}

async fn serve(server: Server, client: impl FnOnce(&mut Client) + Send + 'static) -> String {
    let server = server.bind(("127.0.0.1", 0)).await.unwrap();
    let (host, handle) = (server.address().to_string(), server.handle());
    let serving = tokio::spawn(server.run());
    let transcript = tokio::task::spawn_blocking(move || {
        let mut recorded = Client::new(&host);
        client(&mut recorded);
        recorded.transcript
    });
    let transcript = transcript.await.unwrap();
    handle.shut_down();
    serving.await.unwrap().unwrap();
    transcript
}

fn registry() -> (Harness, Registry) {
    let harness = testbed::harness(MemoryStore::new()).unwrap();
    let replies = [Reply::tool("testTool", json!({})), Reply::text("Soup.")];
    harness.model().program_without_end(replies);
    let registry = harness.registry().clone();
    (harness, registry)
}

fn tokens() -> BearerTokens {
    BearerTokens::new([("alice", "alice-token"), ("bob", "bob-token")])
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_in_this_process() {
    let spans = Arc::new(Spans::default());
    let listening = listen_to_spans(spans.clone());

    let (_harness, agents) = registry();
    assert_recorded("served.txt", &serve(Server::new(&agents), default_paths).await);
    let route = Layout::default().agent_routes(&agents, "promptAgentWithState");
    let server = Server::new(&agents)
        .routes(route)
        .archive(ArchiveAccess::everyone());
    let read = |client: &mut Client| {
        let document = client.unrecorded("GET", "/openapi.json", &[], "").json();
        flatten("", &document, 4, &mut client.transcript);
    };
    assert_recorded("openapi.txt", &serve(server, read).await);

    let (_harness, agents) = registry();
    let operators = || {
        ArchiveAccess::when(|context| {
            context
                .auth()
                .is_some_and(|auth| auth.to_string().contains("alice"))
        })
    };
    let server = Server::new(&agents)
        .context(tokens())
        .archive(operators())
        .operators(operators());
    assert_recorded("callers.txt", &serve(server, callers).await);

    let (_harness, agents) = registry();
    let limited = Limits::default().calls_per_principal(1).body_bytes(200);
    let server = Server::new(&agents).context(tokens()).limits(limited);
    assert_recorded("limits.txt", &serve(server, limits).await);

    let (_harness, agents) = registry();
    let mcp = McpServer::new(&agents).name("testbed", "1.0.0");
    let server = Server::new(&agents).adapter("/mcp", mcp);
    assert_recorded("mcp.txt", &serve(server, model_context_protocol).await);

    drop(listening);
    let spans = spans.0.lock().unwrap();
    let spans = spans.iter().map(|(name, seen)| {
        let seen: Vec<String> = seen.iter().map(|name| format!("    {name}\n")).collect();
        format!("{name}\n{}", seen.concat())
    });
    assert_recorded("spans.txt", &spans.collect::<String>());
}

/// Prints a line for each part of a document at that depth. Descriptions are left out: prose may improve.
fn flatten(path: &str, value: &Value, depth: usize, lines: &mut String) {
    match value {
        Value::Object(fields) if depth > 0 => {
            let is_prose = |name: &str| matches!(name, "description" | "summary");
            for (name, value) in fields.iter().filter(|(name, _)| !is_prose(name)) {
                flatten(&format!("{path} {name}"), value, depth - 1, lines);
            }
        }
        _ => writeln!(lines, "{path}: {value}").unwrap(),
    }
}

fn default_paths(client: &mut Client) {
    client.title("default paths");
    client.post_with("/agents/promptAgentWithTools", &[EXTENSIONS], says("hi"));
    client.post(
        "/agents/promptAgentWithStore",
        says_at("hi", &json!({"sessionId": "dinner"})),
    );
    client.post("/agents/customAgentFailing", says("hi"));
    client.post(
        "/agents/promptAgentWithStore/getSnapshot",
        json!({"data": {"sessionId": "dinner"}}),
    );
    client.post(
        "/agents/promptAgentWithStore/getSession",
        json!({"data": {"sessionId": "dinner"}}),
    );
    client.post(
        "/agents/promptAgentWithStore/delete",
        json!({"data": {"sessionId": "dinner"}}),
    );
    client.post("/agents/promptAgentWithStore/listTenants", json!({"data": {}}));
    client.post("/agents/missing", says("hi"));
}

fn callers(client: &mut Client) {
    let agent = "/agents/customAgentWithCustomStateStore";
    let at = |route: &str| format!("{agent}/{route}");
    client.title("callers");
    client.post(agent, says("hi"));
    client.post_with(agent, &[("authorization", "Bearer wrong")], says("hi"));
    let session = json!({"sessionId": "dinner"});
    let turn = client
        .post_with(agent, &[ALICE], says_at("hi", &session))
        .snapshot();
    client.post_with(agent, &[BOB], says_at("hi", &json!({"snapshotId": turn})));
    client.post_with(&at("getSnapshot"), &[BOB], json!({"data": {"snapshotId": turn}}));
    client.post_with(agent, &[BOB], says_at("hi", &session));
    client.title("a request that is repeated");
    for text in ["once", "once", "twice"] {
        client.post_with(agent, &[ALICE, ("idempotency-key", "key-1")], says(text));
    }
    client.title("operators");
    for path in ["/metrics", "/agents", "/openapi.json", "/healthz"] {
        client.get(path);
    }
    client.send("GET", "/metrics", &[BOB], "");
    client.post_with(&at("delete"), &[BOB], json!({"data": session}));
    client.post_with(&at("listTenants"), &[BOB], json!({"data": {}}));
    client.post_with(&at("listTenants"), &[ALICE], json!({"data": {}}));
    client.post_with(&at("retain"), &[ALICE], json!({"data": {"newest": 1}}));
    client.post_with(&at("retain"), &[ALICE], json!({"data": {}}));
    client.post_with(
        &at("deleteTenant"),
        &[ALICE],
        json!({"data": {"principal": "bob"}}),
    );
    client.post_with(
        &at("deleteTenant"),
        &[ALICE],
        json!({"data": {"tenant": "missing"}}),
    );
    client.post_with(&at("deleteTenant"), &[ALICE], json!({"data": {}}));
    client.post_with(&at("delete"), &[ALICE], json!({"data": session}));
}

fn limits(client: &mut Client) {
    client.title("a body that is too large");
    client.post_with("/agents/promptAgent", &[ALICE], says(&"x".repeat(200)));
    client.title("two calls of one caller at once");
    client.while_streaming("/agents/customAgentBlocking", &says("wait"), |client| {
        client.post_with("/agents/promptAgent", &[ALICE], says("hi"));
        client.post_with("/agents/promptAgent", &[BOB], says("hi"));
    });
}

fn model_context_protocol(client: &mut Client) {
    let accept = ("accept", "application/json, text/event-stream");
    let old = |client: &mut Client, method: &str, params: Value| {
        client.title(method);
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        client.post_with("/mcp", &[accept], message);
    };
    let info = json!({"name": "recorder", "version": "1"});
    let initialize = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
    old(client, "initialize", initialize);
    old(client, "tools/list", json!({}));
    let ask = json!({"name": "promptAgentWithStore", "arguments": {"message": "hi", "sessionId": "dinner"}});
    old(client, "tools/call", ask.clone());
    old(client, "tools/call", json!({"name": "testTool", "arguments": {}}));
    old(client, "tools/call", json!({"name": "missing", "arguments": {}}));
    old(
        client,
        "tools/call",
        json!({"name": "promptAgent", "arguments": {"words": 1}}),
    );
    old(
        client,
        "tools/call",
        json!({"name": "customAgentFailing", "arguments": {"message": "hi"}}),
    );
    old(client, "prompts/list", json!({}));
    old(client, "resources/list", json!({}));
    old(client, "fly", json!({}));
    let stateless = |client: &mut Client, method: &str, name: &str, mut params: Value| {
        client.title(&format!("{method} without a session"));
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": info,
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        });
        let message = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params});
        let version = ("mcp-protocol-version", "2026-07-28");
        let headers = [accept, version, ("mcp-method", method), ("mcp-name", name)];
        client.post_with("/mcp", &headers, message);
    };
    stateless(client, "server/discover", "", json!({}));
    stateless(client, "tools/call", "promptAgentWithStore", ask);
    let cook = json!({"name": "restartTool", "arguments": {"action": "cook"}});
    stateless(client, "tools/call", "restartTool", cook);
    client.title("requests that are refused");
    client.send("POST", "/mcp", &[("content-type", "text/plain"), accept], "{}");
    client.send(
        "POST",
        "/mcp",
        &[("content-type", "application/json"), accept],
        "{",
    );
    client.send("GET", "/mcp", &[accept], "");
}
