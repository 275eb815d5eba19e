//! Tools of an MCP server, used like the application's tools.

use everturn_ai::{Generate, Replay, lookup_tool, lookup_tools};
use everturn_core::{Plugin, Registry, Status};
use everturn_mcp::{McpServer, McpServers, StdioServer};
use everturn_testkit::Reply;
use serde_json::json;

use crate::support::{Sum, client_of, kitchen, kitchen_client, run, script};

#[tokio::test]
async fn a_tool_is_called_by_its_servers_name_and_its_own() {
    let (registry, _connections) = kitchen_client().await;

    let sum = run(&registry, "s/add", Sum { a: 2, b: 3 }).await.unwrap();
    let loud = run(&registry, "s/shout", json!({ "input": "soup" }))
        .await
        .unwrap();

    assert_eq!(sum, json!({ "total": 5 }));
    assert_eq!(loud, "SOUP");
}

#[tokio::test]
async fn a_tool_keeps_its_servers_description() {
    let (registry, _connections) = kitchen_client().await;

    let add = lookup_tool(&registry, "s/add").await.unwrap();

    assert_eq!(add.description(), "Adds two numbers.");
    assert_eq!(add.definition().name, "add");
    assert_eq!(add.metadata()["mcp"]["server"], "s");
    assert_eq!(add.metadata()["annotations"], json!({ "readOnlyHint": true }));
    assert_eq!(add.replay(), Replay::Idempotent);
    assert_eq!(
        lookup_tool(&registry, "s/pay").await.unwrap().replay(),
        Replay::Once
    );
}

#[tokio::test]
async fn arguments_are_checked_against_the_servers_schema() {
    let (registry, _connections) = kitchen_client().await;

    let refused = run(&registry, "s/add", json!({ "a": "two", "b": 3 }))
        .await
        .unwrap_err();

    assert_eq!(refused.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_model_calls_all_tools_of_a_server() {
    let (registry, _connections) = kitchen_client().await;
    let model = script(&registry);
    model.push(Reply::tool("add", json!({ "a": 20, "b": 22 })));
    model.push("42");

    let reply = Generate::new(&registry)
        .prompt("20 + 22?")
        .tool("s/*")
        .await
        .unwrap();

    assert_eq!(reply.text(), "42");
    let results = json!({ "role": "tool", "content": [{ "toolResponse": { "output": { "total": 42 } } }] });
    model.assert_asked(1, &json!({ "messages": [{}, {}, results] }));
}

#[tokio::test]
async fn content_beside_the_output_comes_along() {
    let (registry, _connections) = kitchen_client().await;

    let look = lookup_tool(&registry, "s/look").await.unwrap();
    let response = look.run(json!({})).await.unwrap();

    assert_eq!(response.output, Some(json!("here it is")));
    assert_eq!(
        response.content[0].as_media().unwrap().url,
        "data:image/png;base64,AAAA"
    );
}

#[tokio::test]
async fn a_tool_that_fails_answers_with_its_public_error() {
    let (registry, _connections) = kitchen_client().await;

    let output = run(&registry, "s/spill", json!({})).await.unwrap();

    assert_eq!(output, json!({ "error": "no soup today" }));
}

#[tokio::test]
async fn what_is_not_exposed_is_neither_listed_nor_called() {
    let server = McpServer::new(&kitchen()).only(|descriptor| descriptor.name == "add");
    let (registry, _connections) = client_of(server).await;

    let tools = lookup_tools(&registry, "s/*").await.unwrap();

    let names: Vec<_> = tools.iter().map(everturn_ai::Tool::name).collect();
    assert_eq!(names, ["s/add"]);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_does_not_stop_the_others() {
    let registry = Registry::new();
    let served = crate::support::Served::kitchen().await;
    let servers = McpServers::new()
        .stdio("gone", StdioServer::new("/nonexistent/program"))
        .http("s", served.url.as_str());

    let connections = servers.install(&registry).await.unwrap();

    assert_eq!(connections.connected().await, ["s"]);
    assert_eq!(
        run(&registry, "s/add", Sum { a: 1, b: 1 }).await.unwrap(),
        json!({ "total": 2 })
    );
    let missing = run(&registry, "gone/add", json!({})).await.unwrap_err();
    assert_eq!(missing.status(), Status::Unavailable);
    assert!(missing.message().contains("/nonexistent/program"), "{missing}");
    assert!(registry.list().await.is_ok());
}

#[tokio::test]
async fn a_name_with_a_slash_is_no_servers_name() {
    let refused = McpServers::new()
        .http("a/b", "http://127.0.0.1:1")
        .install(&Registry::new())
        .await;

    assert_eq!(refused.unwrap_err().status(), Status::InvalidArgument);
}

#[tokio::test]
async fn as_a_plugin_the_servers_are_connected_when_the_application_is_built() {
    let served = crate::support::Served::kitchen().await;
    let registry = Registry::new();
    let plugin = McpServers::new().http("s", served.url.as_str());

    plugin.set_up(&registry).await.unwrap();

    assert!(registry.get("/tool/s/add").is_some());
}
