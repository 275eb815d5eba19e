//! Unreachable agents are freed, and their store with them.

use std::sync::{Arc, Weak};

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_agent::{Agent, AgentResult, AgentSession, agent, custom_agent, prompt_agent};
use everturn_ai::Message;
use everturn_ai::prompt::PromptDefinition;
use everturn_core::{DynAction, HandlerResult, JsonCall, Registry, Status};
use everturn_testkit::eventually;
use serde_json::{Value, json};

use crate::prompt_support::answering;

/// Waits until nothing holds the store: tasks that have just ended are dropped by the runtime.
async fn assert_freed(store: &Weak<dyn SessionStore>) {
    eventually("nothing holds the store", async || store.strong_count() == 0).await;
}

fn kept() -> (Arc<dyn SessionStore>, Weak<dyn SessionStore>) {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let weak = Arc::downgrade(&store);
    (store, weak)
}

async fn echo(session: AgentSession) -> HandlerResult<AgentResult> {
    let turns = session.run(|turn| async move {
        turn.add_message(Message::model("heard"));
        Ok(())
    });
    turns.await?;
    Ok(session.result())
}

fn call(text: &str) -> JsonCall {
    JsonCall::new(json!({ "message": { "role": "user", "content": [{ "text": text }] } }))
}

/// Takes turns in the foreground and in the background, and looks at what is kept.
async fn use_everything(agent: &Agent) {
    let reply = agent.run_text("one").await.unwrap();
    let session = reply.session_id().unwrap().clone();
    agent.chat().resume(session.as_str()).run("two").await.unwrap();
    let task = agent.chat().open().await.unwrap().detach("three").await.unwrap();
    task.wait().await.unwrap();
    agent.latest_snapshot(session).await.unwrap();
    agent.archive().unwrap();
    agent.idle().await;
}

#[tokio::test]
async fn an_agent_and_its_registry_that_are_dropped_free_the_store() {
    let (registry, model) = answering(["a!", "b!", "c!", "d!", "e!", "f!"]);
    PromptDefinition::new("asked")
        .system("Answer.")
        .define(&registry)
        .unwrap();
    let (store, freed) = kept();
    let agents: [Agent; 3] = [
        custom_agent(&registry, "custom", echo)
            .store(Arc::clone(&store))
            .define()
            .unwrap(),
        agent(&registry, "inline")
            .system("Answer.")
            .store(Arc::clone(&store))
            .define()
            .unwrap(),
        prompt_agent(&registry, "named")
            .prompt("asked", Value::Null)
            .store(store)
            .define()
            .unwrap(),
    ];
    for agent in &agents {
        use_everything(agent).await;
    }

    drop(agents);
    assert!(
        freed.upgrade().is_some(),
        "the registry still has the agents' actions"
    );
    drop((registry, model));

    assert_freed(&freed).await;
}

#[tokio::test]
async fn an_agent_keeps_the_registry_that_it_needs() {
    let (store, freed) = kept();
    let agent = custom_agent(&Registry::new(), "custom", echo)
        .store(store)
        .define()
        .unwrap();
    let chat = agent.chat();
    let action = agent.action().clone();

    use_everything(&agent).await;
    drop(agent);
    chat.run("a chat is enough").await.unwrap();

    let late = action.run_json(call("nobody is left")).await;
    assert_eq!(late.unwrap_err().status(), Status::Unavailable);
    drop(action);
    assert_freed(&freed).await;
}

#[tokio::test]
async fn an_agent_that_is_registered_elsewhere_keeps_its_own_registry() {
    let elsewhere = Registry::new();
    let (store, freed) = kept();
    let built = custom_agent(&Registry::new(), "custom", echo)
        .store(store)
        .build()
        .unwrap();
    built.register(&elsewhere).unwrap();
    drop(built);

    let action = elsewhere.get("/agent/custom").unwrap();
    action.run_json(call("hi")).await.unwrap();

    drop((action, elsewhere));
    assert_freed(&freed).await;
}
