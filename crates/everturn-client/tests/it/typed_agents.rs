//! Types of remote agents: their status, their output, a streamed turn in one call, and delegation.

use std::sync::{Arc, Mutex};

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentRef, AgentSession, Delegation, agent, custom_agent};
use everturn_ai::{Message, Part};
use everturn_client::{Client, RemoteAgent};
use everturn_core::{Context, Registry};
use everturn_testkit::{Reply, ScriptedModel};
use reqwest::header::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::kitchen::{Serving, serve_all};

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Progress {
    percent: u8,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Bill {
    cents: u32,
}

async fn waiter() -> Serving {
    let registry = Registry::new();
    custom_agent(&registry, "waiter", |session: AgentSession| async move {
        while let Some(turn) = session.next_turn().await? {
            turn.send_status(Progress { percent: 50 }).await?;
            turn.send_chunk("Here ").await?;
            turn.send_chunk("it is.").await?;
            turn.add_message(Message::model("Here it is."));
            turn.end(()).await?;
        }
        Ok(session.result().with_output(Bill { cents: 1250 }))
    })
    .status::<Progress>()
    .store(MemoryStore::new())
    .define()
    .unwrap();
    serve_all(&registry).await
}

fn url(server: &Serving) -> String {
    format!("http://{}/agents/waiter", server.address)
}

#[tokio::test]
async fn one_turn_is_streamed_in_one_call_with_its_types() {
    let server = waiter().await;
    let agent: RemoteAgent<Value, Progress, Bill> = RemoteAgent::<Value>::new(&url(&server))
        .unwrap()
        .status()
        .output();

    let mut turn = agent.stream_text("The bill, please.").await.unwrap();
    let (mut text, mut progress) = (String::new(), Vec::new());
    while let Some(chunk) = turn.next().await {
        let chunk = chunk.unwrap();
        text.push_str(&chunk.text());
        progress.extend(chunk.status().unwrap());
    }
    let reply = turn.output().await.unwrap();

    assert_eq!(text, "Here it is.");
    assert_eq!(progress, [Progress { percent: 50 }]);
    assert_eq!(reply.value().unwrap(), Some(Bill { cents: 1250 }));
    let again = agent
        .chat()
        .resume(reply.session_id())
        .stream("Again.")
        .await
        .unwrap();
    assert_eq!(again.output().await.unwrap().session_id(), reply.session_id());
}

#[tokio::test]
async fn a_task_is_handed_to_an_agent_on_another_server_in_a_context_of_its_own() {
    let server = waiter().await;
    let callers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&callers);
    let client = Client::builder().headers(move |context: Context| {
        seen.lock().unwrap().push(context.auth().cloned());
        async { Ok(HeaderMap::new()) }
    });
    let remote: RemoteAgent = client.build().unwrap().agent(&url(&server)).unwrap();
    let registry = Registry::new();
    let model = ScriptedModel::new()
        .reply(Reply::tool("delegate_to_waiter", json!({"task": "The bill"})))
        .reply("done");
    model.register(&registry, "scripted").unwrap();
    let waiter = AgentRef::reached("waiter", remote)
        .description("Brings the bill.")
        .seed(|context| context.with_value("auth", "the lead"));
    let lead = agent(&registry, "lead")
        .model("scripted")
        .use_middleware(Delegation::to([waiter]))
        .define()
        .unwrap();

    lead.run_text("How much is it?").await.unwrap();

    let request = model.last_request().unwrap();
    let mut answered = request.messages.last().unwrap().content().iter();
    let answer = answered.find_map(Part::as_tool_response).unwrap().output.clone();
    assert_eq!(answer.unwrap()["response"], "Here it is.");
    assert_eq!(*callers.lock().unwrap(), [Some(json!("the lead"))]);
}
