//! The input of an agent's prompt is checked against the prompt's schema: when the agent is defined, and
//! before a session is touched.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    AgentInit, ClientPermissions, SessionState, SnapshotId, SnapshotIds, agent, prompt_agent,
};
use everturn_ai::prompt::{Prompt, PromptDefinition};
use everturn_core::{DynAction, JsonCall, Registry, Status};
use everturn_testkit::ScriptedModel;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::prompt_support::{asked, registry};
use crate::support::FaultyStore;

#[derive(Serialize, JsonSchema)]
struct Role {
    tone: String,
}

fn model() -> ScriptedModel {
    ScriptedModel::new().otherwise(|_| "fine")
}

fn reviewer(registry: &Registry) -> Prompt<Role> {
    PromptDefinition::new("reviewer")
        .input::<Role>()
        .system("Be {{tone}}.")
        .define(registry)
        .unwrap()
}

fn last_system(model: &ScriptedModel) -> String {
    asked(&model.last_request().unwrap())[0].clone()
}

fn call(init: Value) -> JsonCall {
    JsonCall {
        input: Some(json!({"message": {"role": "user", "content": [{"text": "my soup?"}]}})),
        init: Some(init),
        ..JsonCall::default()
    }
}

#[tokio::test]
async fn a_typed_prompt_gives_the_agent_its_input() {
    let model = model();
    let registry = registry(&model);
    let reviewer = reviewer(&registry);

    let critic = prompt_agent(&registry, "critic")
        .prompt_ref(&reviewer, Role { tone: "kind".into() })
        .define()
        .unwrap();
    critic.run_text("my soup?").await.unwrap();

    assert_eq!(last_system(&model), "system: Be kind.");
}

#[tokio::test]
async fn a_typed_prompt_without_an_input_leaves_it_to_the_caller() {
    let model = model();
    let registry = registry(&model);
    let critic = prompt_agent(&registry, "critic")
        .prompt_ref(&reviewer(&registry), None)
        .define()
        .unwrap();

    let blank = critic.run_text("my soup?").await.unwrap_err();
    let given = critic
        .chat()
        .prompt_input(json!({"tone": "dry"}))
        .run("my soup?")
        .await;

    assert_eq!(blank.status(), Status::InvalidArgument);
    assert!(blank.public_message().unwrap().contains("tone"), "{blank}");
    given.unwrap();
    assert_eq!(last_system(&model), "system: Be dry.");
    model.assert_calls(1);
}

#[tokio::test]
async fn an_input_that_does_not_fit_the_prompt_is_found_when_the_agent_is_defined() {
    let registry = registry(&model());
    reviewer(&registry);
    let define = |input: Value| {
        prompt_agent(&registry, "critic")
            .prompt("reviewer", input)
            .define()
    };

    let wrong = define(json!({"tone": 3})).unwrap_err();
    let missing = define(json!({})).unwrap_err();

    for (refused, field) in [(wrong, "/tone"), (missing, "tone")] {
        assert_eq!(refused.status(), Status::InvalidArgument);
        assert!(refused.message().contains("'critic'"), "{refused}");
        assert!(refused.message().contains(field), "{refused}");
    }
}

#[tokio::test]
async fn the_prompts_defaults_count_as_given() {
    let model = model();
    let registry = registry(&model);
    PromptDefinition::new("reviewer")
        .input::<Role>()
        .input_default(json!({"tone": "plain"}))
        .system("Be {{tone}}.")
        .define(&registry)
        .unwrap();

    let critic = prompt_agent(&registry, "critic")
        .prompt("reviewer", Value::Null)
        .define()
        .unwrap();
    critic.run_text("my soup?").await.unwrap();

    assert_eq!(last_system(&model), "system: Be plain.");
}

#[tokio::test]
async fn a_clients_input_is_checked_before_the_store_is_asked() {
    let registry = registry(&model());
    let store = FaultyStore::default();
    store.fail_saves(true);
    store.fail_reads(true);
    reviewer(&registry);
    let critic = prompt_agent(&registry, "critic")
        .prompt("reviewer", json!({"tone": "kind"}))
        .client_permissions(ClientPermissions::none().prompt_input(["tone"]))
        .store(store.clone())
        .define()
        .unwrap();

    for input in [json!({"tone": 3}), json!({"tune": "kind"}), json!("kind")] {
        let refused = critic
            .action()
            .run_json(call(json!({"sessionId": "s", "promptInput": input})));
        let refused = refused.await.unwrap_err();

        assert_eq!(refused.status(), Status::InvalidArgument, "{input}");
        assert!(
            refused.public_message().unwrap().contains("promptInput"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn the_input_in_a_state_that_a_client_kept_is_checked_too() {
    let registry = registry(&model());
    let critic = prompt_agent(&registry, "critic")
        .prompt_ref(&reviewer(&registry), Role { tone: "kind".into() })
        .client_permissions(ClientPermissions::none().prompt_input(["tone"]))
        .define()
        .unwrap();

    let forged = call(json!({"state": {"messages": [], "promptInput": {"tone": ["harsh"]}}}));
    let refused = critic.action().run_json(forged).await.unwrap_err();

    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(refused.message().contains("/tone"), "{refused}");
}

#[tokio::test]
async fn an_inline_prompt_may_name_the_type_of_its_input() {
    let model = model();
    let critic = agent(&registry(&model), "critic")
        .system("Be {{tone}}.")
        .prompt_input_type::<Role>()
        .define()
        .unwrap();

    let refused = critic.connect(AgentInit::default().with_prompt_input(json!({"tune": "kind"})));
    let refused = { refused }.output().await.unwrap_err();

    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(refused.message().contains("tone"), "{refused}");
    model.assert_calls(0);
}

#[tokio::test]
async fn the_prompt_input_is_part_of_a_content_addressed_id() {
    let state = |tone: &str| SessionState {
        prompt_input: Some(Arc::new(json!({"tone": tone}))),
        ..SessionState::default()
    };
    let registry = registry(&model());
    let critic = prompt_agent(&registry, "critic")
        .prompt_ref(&reviewer(&registry), None)
        .snapshot_ids(SnapshotIds::ContentAddressed)
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let reply = critic
        .chat()
        .prompt_input(json!({"tone": "dry"}))
        .run("my soup?")
        .await
        .unwrap();
    let mut snapshot = critic.get_snapshot(reply.snapshot_id()).await.unwrap();
    let untouched = snapshot.verify();
    snapshot.state.as_mut().unwrap().prompt_input = Some(Arc::new(json!({"tone": "sweet"})));

    assert_ne!(
        SnapshotId::of_state(&state("dry")).unwrap(),
        SnapshotId::of_state(&state("sweet")).unwrap()
    );
    assert!(untouched.unwrap());
    assert!(!snapshot.verify().unwrap(), "a changed prompt input shows");
}
