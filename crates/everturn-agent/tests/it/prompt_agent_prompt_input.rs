//! The prompt input is set when a conversation begins, and kept with it.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_agent::{Agent, AgentInit, agent, prompt_agent};
use everturn_ai::prompt::PromptDefinition;
use everturn_core::{Registry, Status};
use everturn_testkit::ScriptedModel;
use serde_json::{Value, json};

use crate::prompt_support::{asked, registry};

fn model() -> ScriptedModel {
    ScriptedModel::new().otherwise(|_| "fine")
}

/// A critic who is harsh by default.
fn critic(registry: &Registry, store: Arc<dyn SessionStore>, tone: &str) -> Agent {
    let builder = agent(registry, "critic")
        .system("Be {{tone}}.")
        .prompt_input(json!({"tone": tone}));
    builder.store(store).define().unwrap()
}

fn last_system(model: &ScriptedModel) -> String {
    asked(&model.last_request().unwrap())[0].clone()
}

#[tokio::test]
async fn the_default_prompt_input_is_kept_with_the_conversation() {
    let model = model();
    let store = Arc::new(MemoryStore::new());
    let harsh = critic(&registry(&model), store.clone(), "harsh");
    harsh.chat().resume("s").run("my soup?").await.unwrap();
    let snapshot = harsh.latest_snapshot("s").await.unwrap();

    // The agent changes its mind; the conversation does not.
    let kind = critic(&registry(&model), store, "kind");
    kind.chat().resume("s").run("my stew?").await.unwrap();
    let resumed = last_system(&model);
    kind.run_text("my roast?").await.unwrap();

    assert_eq!(
        snapshot.state.unwrap().prompt_input.as_deref(),
        Some(&json!({"tone": "harsh"}))
    );
    assert_eq!(resumed, "system: Be harsh.");
    assert_eq!(last_system(&model), "system: Be kind.");
}

#[tokio::test]
async fn a_conversation_may_bring_its_own_prompt_input_and_need_not_repeat_it() {
    let model = model();
    let agent = critic(&registry(&model), Arc::new(MemoryStore::new()), "harsh");

    let begun = agent
        .chat()
        .resume("s")
        .prompt_input(json!({"tone": "sweet"}))
        .run("my soup?")
        .await
        .unwrap();
    let first = last_system(&model);
    agent.chat().resume("s").run("my stew?").await.unwrap();
    let by_session = last_system(&model);
    agent
        .chat()
        .snapshot(begun.snapshot_id().unwrap().clone())
        .run("my roast?")
        .await
        .unwrap();

    assert_eq!(
        [first, by_session, last_system(&model)],
        ["system: Be sweet."; 3].map(str::to_owned)
    );
}

#[tokio::test]
async fn a_client_that_keeps_the_state_keeps_the_input_with_it() {
    let model = model();
    let agent = agent(&registry(&model), "critic")
        .system("Be {{tone}}.")
        .define()
        .unwrap();

    let begun = agent
        .chat()
        .prompt_input(json!({"tone": "sweet"}))
        .run("my soup?")
        .await
        .unwrap();
    let state = begun.state().unwrap().clone();
    agent.chat().state(state.clone()).run("my stew?").await.unwrap();

    assert_eq!(state.prompt_input.as_deref(), Some(&json!({"tone": "sweet"})));
    assert_eq!(last_system(&model), "system: Be sweet.");
}

#[tokio::test]
async fn a_conversation_in_progress_does_not_take_another_prompt_input() {
    let model = model();
    let agent = critic(&registry(&model), Arc::new(MemoryStore::new()), "harsh");
    agent.chat().resume("s").run("my soup?").await.unwrap();

    let mut other = agent.connect(AgentInit::session("s").with_prompt_input(json!({"tone": "sweet"})));
    let refused = other.output().await.unwrap_err();
    let mut same = agent.connect(AgentInit::session("s").with_prompt_input(json!({"tone": "harsh"})));

    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(same.output().await.is_ok());
    model.assert_calls(1);
}

#[tokio::test]
async fn the_prompts_own_defaults_fill_in_what_is_left_out() {
    let model = model();
    let registry = registry(&model);
    PromptDefinition::new("review")
        .input_default(json!({"tone": "plain", "length": "short"}))
        .system("Be {{tone}} and {{length}}.")
        .define(&registry)
        .unwrap();
    let plain = prompt_agent(&registry, "plain")
        .prompt("review", Value::Null)
        .define()
        .unwrap();
    let kind = prompt_agent(&registry, "kind")
        .prompt("review", json!({"tone": "kind"}))
        .define()
        .unwrap();

    plain.run_text("my soup?").await.unwrap();
    let without = last_system(&model);
    let reply = kind.run_text("my soup?").await.unwrap();

    assert_eq!(without, "system: Be plain and short.");
    assert_eq!(last_system(&model), "system: Be kind and short.");
    assert_eq!(
        reply.state().unwrap().prompt_input.as_deref(),
        Some(&json!({"tone": "kind"}))
    );
}
