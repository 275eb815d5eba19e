//! Agents for MCP clients: a session id in and out, questions, and tasks for what takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everturn_agent::Delegation;
use everturn_agent::store::MemoryStore;
use everturn_ai::{Generate, Tool, ToolContext, lookup_tool, set_default_model};
use everturn_core::{Error, JsonCall, Registry, Status};
use everturn_mcp::{McpServer, McpServers};
use everturn_testkit::{Gate, Reply, ScriptedModel, elapse, eventually};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::support::{Shared, client_of, kitchen_client, run};

#[tokio::test]
async fn a_conversation_continues_by_its_session_id() {
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
pub(crate) fn scripted() -> (Registry, ScriptedModel) {
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

#[tokio::test]
async fn an_agent_that_another_delegates_to_is_no_tool() {
    let (app, model) = scripted();
    model.push(Reply::text("Hello."));
    let team = Delegation::to(["scout", "porter"]);
    let define = |name: &str| everturn_agent::agent(&app, name);
    define("desk").use_middleware(team).define().unwrap();
    define("scout").define().unwrap();
    define("porter").public().define().unwrap();
    let (registry, _connections) = client_of(McpServer::new(&app)).await;

    assert!(lookup_tool(&registry, "s/scout").await.is_err());
    assert!(lookup_tool(&registry, "s/desk").await.is_ok());
    let public = run(&registry, "s/porter", json!({ "message": "hi" })).await;
    assert!(public.is_ok(), "{public:?}");
    model.assert_calls(1);
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
    elapse(A_WHILE).await;

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
    elapse(A_WHILE).await;

    context.cancel();

    assert_eq!(call.await.unwrap().unwrap_err().status(), Status::Cancelled);
    eventually("the run is cancelled", async || {
        model.calls()[0].context.is_cancelled()
    })
    .await;
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

    let generate = Generate::new(&registry).prompt("Send 500.").tool("s/banker");
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
    let generate = Generate::new(&registry)
        .messages(asked.messages())
        .tool("s/banker");
    let reply = generate.restart(restart).await.unwrap();

    assert_eq!(reply.text(), "Thanks.");
    let sent = json!({ "content": [{ "toolResponse": { "name": "transfer", "output": "500 sent" } }] });
    model.assert_asked(1, &json!({ "messages": [{}, {}, {}, sent] }));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asks_is_answered_and_continues() {
    let gate = Gate::new();
    let (app, model) = scripted();
    model.push(Reply::tool("transfer", 500).wait(&gate));
    model.push("Sent.");
    let (registry, _connections) = client_of(McpServer::new(&app)).await;
    let asking = crate::support::script(&registry);
    asking.push(Reply::tool("banker", json!({ "message": "Send 500." })));
    asking.push("Thanks.");
    let client = registry.clone();
    let call = tokio::spawn(async move { Generate::new(&client).prompt("Send 500.").tool("s/banker").await });
    gate.reached().await;
    elapse(A_WHILE).await;

    gate.open();
    let asked = call.await.unwrap().unwrap();
    let part = asked.interrupts().next().unwrap();
    let question = &part.interrupt().unwrap()["mcp"];
    assert!(question["taskId"].is_string(), "{question}");
    let restart = part.restart(Some(json!({ "approved": true })), None).unwrap();
    let generate = Generate::new(&registry)
        .messages(asked.messages())
        .tool("s/banker");
    let reply = generate.restart(restart).await.unwrap();

    assert_eq!(reply.text(), "Thanks.");
    let answered = json!({ "content": [{ "toolResponse": { "output": { "finishReason": "stop" } } }] });
    asking.assert_asked(1, &json!({ "messages": [{}, {}, answered] }));
    let sent = json!({ "content": [{ "toolResponse": { "name": "transfer", "output": "500 sent" } }] });
    model.assert_asked(1, &json!({ "messages": [{}, {}, {}, sent] }));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_taken_up_again_waits_on_for_its_task() {
    let gate = Gate::new();
    let (app, model) = scripted();
    model.push(Reply::text("It took a while.").wait(&gate));
    let is_there = Arc::new(AtomicBool::new(true));
    let cuts: Shared<Vec<AbortHandle>> = Arc::default();
    let registry = Registry::new();
    let servers = McpServers::new().stream("s", {
        let (server, is_there, cuts) = (McpServer::new(&app), Arc::clone(&is_there), Arc::clone(&cuts));
        move || {
            let (ours, mut near) = tokio::io::duplex(64 * 1024);
            let (mut far, theirs) = tokio::io::duplex(64 * 1024);
            tokio::spawn(server.clone().serve_stream(theirs));
            let wire = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            cuts.lock().unwrap().push(wire.abort_handle());
            let is_there = is_there.load(Ordering::Relaxed);
            async move {
                if is_there {
                    Ok(ours)
                } else {
                    Err(Error::unavailable("not now"))?
                }
            }
        }
    });
    let _connections = servers.install(&registry).await.unwrap();
    let asking = crate::support::script(&registry);
    asking.push(Reply::tool("banker", json!({ "message": "Work." })));
    asking.push("Thanks.");
    let store = MemoryStore::new();
    let boss = everturn_agent::agent(&registry, "boss")
        .system("You delegate.")
        .tool("s/banker")
        .store(store);
    boss.define().unwrap();
    let turn = |input: Value| {
        let boss = registry.get("/agent/boss").unwrap();
        let call = JsonCall {
            init: Some(json!({ "sessionId": "today" })),
            ..JsonCall::new(input)
        };
        tokio::spawn(async move { boss.run_json(call).await.unwrap() })
    };

    let message = json!({ "role": "user", "content": [{ "text": "Have it done." }] });
    let first = turn(json!({ "message": message }));
    gate.reached().await;
    elapse(A_WHILE).await;
    is_there.store(false, Ordering::Relaxed);
    cuts.lock().unwrap().iter().for_each(AbortHandle::abort);
    let failed = first.await.unwrap();
    is_there.store(true, Ordering::Relaxed);
    gate.open();
    let done = turn(json!({})).await.unwrap();

    assert_eq!(failed["finishReason"], "failed", "{failed}");
    assert_eq!(done["finishReason"], "stop", "{done}");
    assert_eq!((model.calls().len(), asking.calls().len()), (1, 2));
}
