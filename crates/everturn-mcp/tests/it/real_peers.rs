//! The official server, client and inspector, unchanged.
//!
//! Ignored by default, because they need other languages and their packages:
//!
//! ```text
//! npm install --prefix .tools/npm @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/inspector@2.12.0
//! python3 -m venv .tools/python && .tools/python/bin/pip install mcp==2.3.0
//! cargo test -p everturn-mcp -- --ignored
//! ```

use std::path::{Path, PathBuf};
use std::process::Stdio;

use everturn_ai::prompt::Prompt;
use everturn_ai::{Generate, Part, ToolContext, ToolRequest, lookup_tool};
use everturn_core::{Context, Emitter, JsonCall, Registry, Status};
use everturn_mcp::{Answer, Connections, McpServers, StdioServer};
use everturn_testkit::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::{Served, run};

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools")
}

fn everything() -> PathBuf {
    tools().join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

/// The example that serves over standard input and output, beside which this test was built.
fn stdio_server() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("examples/stdio_server");
    assert!(
        built.exists(),
        "build the examples first: cargo build -p everturn-mcp --examples"
    );
    built
}

async fn client(servers: McpServers) -> (Registry, Connections) {
    let registry = Registry::new();
    let connections = servers.install(&registry).await.unwrap();
    // An interpreter on a busy machine may take longer to start than is waited for; the next use connects
    // again.
    for name in ["e/none", "p/none", "e/none", "p/none"] {
        if connections.connected().await.is_empty() {
            let _ = lookup_tool(&registry, name).await;
        }
    }
    assert_eq!(connections.connected().await.len(), 1);
    (registry, connections)
}

/// The checks that every transport must pass.
async fn drives_everything(registry: &Registry) {
    let echo = run(registry, "e/echo", json!({ "message": "hello" }))
        .await
        .unwrap();
    let weather = run(
        registry,
        "e/get-structured-content",
        json!({ "location": "New York" }),
    )
    .await
    .unwrap();
    let image = lookup_tool(registry, "e/get-tiny-image").await.unwrap();
    let image = image.run(json!({})).await.unwrap();
    let refused = run(registry, "e/echo", json!({ "message": 7 }))
        .await
        .unwrap_err();
    let prompt = Prompt::lookup(registry, "e/simple-prompt").unwrap();
    let prompt = prompt.render(json!({})).await.unwrap();

    assert_eq!(echo, "Echo: hello");
    assert!(weather["temperature"].is_number(), "{weather}");
    assert!(
        image.content[0]
            .as_media()
            .unwrap()
            .url
            .starts_with("data:image/png;base64,")
    );
    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(!prompt.messages.is_empty());
    let resources = registry.of_type(&everturn_core::ActionType::RESOURCE);
    let (_, resource) = resources
        .iter()
        .find(|(_, action)| action.descriptor().metadata["resource"]["uri"].is_string())
        .unwrap();
    let uri = &resource.descriptor().metadata["resource"]["uri"];
    let read = resource
        .run_json(JsonCall::new(json!({ "uri": uri })))
        .await
        .unwrap();
    assert!(!read["content"].as_array().unwrap().is_empty());
}

#[tokio::test]
#[ignore = "needs node and the npm package @modelcontextprotocol/server-everything"]
async fn the_official_server_is_used_over_stdio() {
    let server = StdioServer::new("node").arg(everything()).arg("stdio");
    let (registry, _connections) = client(McpServers::new().stdio("e", server)).await;

    drives_everything(&registry).await;
}

/// The official server over HTTP, at a free port.
async fn everything_over_http() -> (Child, String) {
    let port = {
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        free.local_addr().unwrap().port()
    };
    let mut server = Command::new("node")
        .arg(everything())
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("listening") {
            break;
        }
    }
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (server, format!("http://127.0.0.1:{port}/mcp"))
}

#[tokio::test]
#[ignore = "needs node and the npm package @modelcontextprotocol/server-everything"]
async fn the_official_server_is_used_over_http() {
    let (_server, url) = everything_over_http().await;
    let (registry, _connections) = client(McpServers::new().http("e", url)).await;

    drives_everything(&registry).await;
}

#[tokio::test]
#[ignore = "needs node and the npm package @modelcontextprotocol/server-everything"]
async fn the_official_server_is_killed_in_the_middle_of_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!(
        "echo $$ > '{}'; exec node '{}' stdio",
        pid.display(),
        everything().display()
    );
    let server = StdioServer::new("sh").args(["-c", &script]);
    let (registry, _connections) = client(McpServers::new().stdio("e", server)).await;
    let first = std::fs::read_to_string(&pid).unwrap();
    let (progress, mut begun) = tokio::sync::mpsc::channel(8);
    let emitter = Emitter::channel(progress);
    let part = Part::from(ToolRequest::new("trigger-long-running-operation", json!({})));
    let context = ToolContext::for_request(Context::new(), part, emitter);
    let work = lookup_tool(&registry, "e/trigger-long-running-operation")
        .await
        .unwrap();
    let input = json!({ "duration": 60, "steps": 60 });
    let call = tokio::spawn(async move { work.run_in(Some(input), context).await });
    begun.recv().await.unwrap();

    let killed = std::process::Command::new("kill")
        .args(["-9", first.trim()])
        .status();
    assert!(killed.unwrap().success());
    let error = call.await.unwrap().unwrap_err();
    let echo = run(&registry, "e/echo", json!({ "message": "again" }))
        .await
        .unwrap();

    assert_eq!(error.status(), Status::Unavailable);
    assert_eq!(echo, "Echo: again");
    assert_ne!(std::fs::read_to_string(&pid).unwrap(), first);
}

#[tokio::test]
#[ignore = "needs node and the npm package @modelcontextprotocol/server-everything"]
async fn what_the_official_server_asks_is_answered_by_a_handler() {
    let server = StdioServer::new("node").arg(everything()).arg("stdio");
    let servers = McpServers::new()
        .stdio("e", server)
        .on_elicitation(|_| async { Ok(Answer::Decline) });
    let (registry, _connections) = client(servers).await;
    eventually("the tool is listed", async || {
        lookup_tool(&registry, "e/trigger-elicitation-request")
            .await
            .is_ok()
    })
    .await;

    let answer = run(&registry, "e/trigger-elicitation-request", json!({}))
        .await
        .unwrap();

    let answer = answer.to_string();
    assert!(answer.contains("declined"), "{answer}");
}

/// Runs a program to its end and gives what it printed.
async fn printed(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

async fn inspect(target: &[&str], request: &[&str]) -> Value {
    let mut command = Command::new(tools().join("npm/node_modules/.bin/mcp-inspector"));
    command.arg("--cli").args(target).args(request);
    let text = printed(&mut command).await;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs node and the npm package @modelcontextprotocol/inspector"]
async fn the_official_inspector_drives_it_over_http_and_stdio() {
    let served = Served::kitchen().await;
    let program = stdio_server();
    let call = [
        "--method",
        "tools/call",
        "--tool-name",
        "add",
        "--tool-arg",
        "a=2",
        "--tool-arg",
        "b=3",
    ];

    for target in [[served.url.as_str()], [program.to_str().unwrap()]] {
        let tools = inspect(&target, &["--method", "tools/list"]).await;
        let sum = inspect(&target, &call).await;
        let prompts = inspect(&target, &["--method", "prompts/list"]).await;
        let menu = inspect(
            &target,
            &["--method", "resources/read", "--uri", "kitchen://menu"],
        )
        .await;

        let names: Vec<_> = tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| &tool["name"])
            .collect();
        assert!(names.contains(&&json!("add")), "{names:?}");
        assert_eq!(sum["structuredContent"], json!({ "total": 5 }));
        assert_eq!(prompts["prompts"][0]["name"], "recipe");
        assert_eq!(menu["contents"][0]["text"], "Leek soup.");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Python and its package mcp"]
async fn the_official_python_client_drives_it() {
    let served = Served::kitchen().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/client.py");
    let mut command = Command::new(tools().join("python/bin/python"));

    let text = printed(command.arg(script).arg(&served.url).arg(stdio_server())).await;

    assert!(text.ends_with("ok\n"), "{text}");
}

#[tokio::test]
#[ignore = "needs Python and its package mcp"]
async fn the_official_python_server_asks_and_changes_its_tools() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/server.py");
    let python = StdioServer::new(tools().join("python/bin/python")).arg(script);
    let (registry, _connections) = client(McpServers::new().stdio("p", python)).await;
    let model = crate::support::script(&registry);
    model.push(everturn_testkit::Reply::tool("pay", json!({ "euros": 7 })));
    model.push("Paid.");

    let sum = run(&registry, "p/add", json!({ "a": 2, "b": 3 })).await.unwrap();
    let asked = Generate::new(&registry)
        .prompt("Pay.")
        .tool("p/pay")
        .await
        .unwrap();
    let part = asked.interrupts().next().unwrap();
    let restart = part.restart(Some(json!({ "by": "Ada" })), None).unwrap();
    let generate = Generate::new(&registry).messages(asked.messages()).tool("p/pay");
    let reply = generate.restart(restart).await.unwrap();
    run(&registry, "p/grow", json!({})).await.unwrap();

    assert_eq!(sum, json!({ "result": 5 }));
    assert_eq!(reply.text(), "Paid.");
    let paid =
        json!({ "content": [{ "toolResponse": { "output": { "result": "7 paid, allowed by Ada" } } }] });
    model.assert_asked(1, &json!({ "messages": [{}, {}, paid] }));
    eventually("the tool is listed", async || {
        lookup_tool(&registry, "p/grown").await.is_ok()
    })
    .await;
}
