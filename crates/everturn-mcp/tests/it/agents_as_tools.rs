//! Agents for MCP clients: a session id in and out, questions, and tasks for what takes long.

use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_ai::{Tool, ToolContext, lookup_tool, set_default_model};
use everturn_core::{Registry, Status};
use everturn_mcp::McpServer;
use everturn_testkit::{Gate, Reply, ScriptedModel};
use serde_json::json;

use crate::support::{client_of, kitchen_client, run, until};

#[tokio::test]
async fn a_conversation_goes_on_by_its_session_id() {
    let (registry, _connections) = kitchen_client().await;

    let parrot = lookup_tool(&registry, "s/parrot").await.unwrap();
    let first = parrot
        .run(json!({ "message": "hello" }))
        .await
        .unwrap()
        .output
        .unwrap();
    let second = json!({ "message": "again", "sessionId": first["sessionId"] });
    let second = parrot.run(second).await.unwrap().output.unwrap();

    assert_eq!(first["finishReason"], "stop");
    assert_eq!(second["sessionId"], first["sessionId"]);
    assert_ne!(second["snapshotId"], first["snapshotId"]);
}

#[tokio::test]
async fn arguments_that_are_no_agents_are_refused() {
    let (registry, _connections) = kitchen_client().await;

    let unknown = run(&registry, "s/parrot", json!({ "message": "hi", "mood": "good" })).await;
    let missing = run(&registry, "s/parrot", json!({})).await;

    assert_eq!(unknown.unwrap_err().status(), Status::InvalidArgument);
    assert_eq!(missing.unwrap_err().status(), Status::InvalidArgument);
}

/// An application with an agent that plays a script, and its model.
fn scripted() -> (Registry, ScriptedModel) {
    let registry = Registry::new();
    let model = ScriptedModel::new();
    model.register(&registry, "script").unwrap();
    set_default_model(&registry, "script");
    let allowed = Tool::new(
        "transfer",
        "Sends money.",
        |euros: u32, cx: ToolContext| async move {
            if !cx.is_restarted() {
                Err::<(), _>(cx.interrupt(json!({ "message": format!("Send {euros}?") })))?;
            }
            Ok(format!("{euros} sent"))
        },
    );
    everturn_agent::agent(&registry, "banker")
        .system("You are a banker.")
        .tool(allowed)
        .store(MemoryStore::new())
        .define()
        .unwrap();
    (registry, model)
}

/// Longer than an agent is waited for.
const A_WHILE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_is_a_task_that_is_waited_for() {
    let gate = Gate::new();
    let (app, model) = scripted();
    model.push(Reply::text("It took a while.").wait(&gate));
    let (registry, _connections) = client_of(McpServer::new(&app)).await;
    let banker = lookup_tool(&registry, "s/banker").await.unwrap();
    let call = tokio::spawn(async move { banker.run(json!({ "message": "Work." })).await });
    gate.reached().await;
    tokio::time::sleep(A_WHILE).await;

    gate.open();
    let response = call.await.unwrap().unwrap();

    assert_eq!(response.output.unwrap()["finishReason"], "stop");
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_task_aborts_the_run() {
    let gate = Gate::new();
    let (app, model) = scripted();
    model.push(Reply::text("never").wait(&gate));
    let (registry, _connections) = client_of(McpServer::new(&app)).await;
    let banker = lookup_tool(&registry, "s/banker").await.unwrap();
    let context = everturn_core::Context::new();
    let asked = ToolContext::new(context.clone());
    let call = tokio::spawn(async move { banker.run_in(Some(json!({ "message": "Work." })), asked).await });
    gate.reached().await;
    tokio::time::sleep(A_WHILE).await;

    context.cancel();

    assert_eq!(call.await.unwrap().unwrap_err().status(), Status::Cancelled);
    until(async || model.calls()[0].context.is_cancelled()).await;
}

#[tokio::test]
async fn an_agents_question_is_answered_through_the_client() {
    let (app, model) = scripted();
    model.push(Reply::tool("transfer", 500));
    model.push("Sent.");
    let (registry, _connections) = client_of(McpServer::new(&app)).await;
    let asking = crate::support::script(&registry);
    asking.push(Reply::tool("banker", json!({ "message": "Send 500." })));
    asking.push("Thanks.");

    let generate = everturn_ai::Generate::new(&registry)
        .prompt("Send 500.")
        .tool("s/banker");
    let asked = generate.await.unwrap();
    let part = asked
        .message
        .as_ref()
        .unwrap()
        .interrupts()
        .next()
        .unwrap()
        .clone();
    let restart = part.restart(Some(json!({ "approved": true })), None).unwrap();
    let generate = everturn_ai::Generate::new(&registry)
        .messages(asked.messages())
        .tool("s/banker");
    let reply = generate.restart(restart).await.unwrap();

    assert_eq!(reply.text(), "Thanks.");
    let sent = json!({ "content": [{ "toolResponse": { "name": "transfer", "output": "500 sent" } }] });
    model.assert_asked(1, &json!({ "messages": [{}, {}, {}, sent] }));
}
