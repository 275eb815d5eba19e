//! Defining agents around prompts: what is shared, and which mistakes show at once.

use everturn_agent::{agent, prompt_agent};
use everturn_ai::prompt::{ContentSlot, Prompt, PromptDefinition};
use everturn_core::{Error, Status};
use everturn_testkit::ScriptedModel;
use serde_json::{Value, json};

use crate::prompt_support::{answering, asked, registry};

#[tokio::test]
async fn one_prompt_backs_many_agents() {
    let (registry, model) = answering(["a", "b", "c"]);
    PromptDefinition::new("reviewer")
        .system("Be {{tone}}.")
        .define(&registry)
        .unwrap();
    let kind = prompt_agent(&registry, "kind")
        .prompt("reviewer", json!({"tone": "kind"}))
        .define()
        .unwrap();
    let harsh = prompt_agent(&registry, "harsh")
        .prompt("reviewer", json!({"tone": "harsh"}))
        .define()
        .unwrap();
    let same = prompt_agent(&registry, "reviewer")
        .prompt_input(json!({"tone": "fair"}))
        .define()
        .unwrap();

    for agent in [kind, harsh, same] {
        agent.run_text("my soup?").await.unwrap();
    }

    let systems: Vec<String> = model
        .requests()
        .iter()
        .map(|request| asked(request)[0].clone())
        .collect();
    assert_eq!(
        systems,
        ["system: Be kind.", "system: Be harsh.", "system: Be fair."]
    );
}

#[tokio::test]
async fn an_inline_prompt_is_found_under_the_agents_name() {
    let (registry, _model) = answering(["soup"]);
    agent(&registry, "chef")
        .prompt_input(json!({"name": "Ann"}))
        .system("You are {{name}}.")
        .define()
        .unwrap();

    let prompt = Prompt::lookup(&registry, "chef").unwrap();

    let request = prompt.render(json!({"name": "Bob"})).await.unwrap();
    assert_eq!(asked(&request), ["system: You are Bob."]);
}

#[test]
fn a_prompt_that_does_not_exist_is_not_found() {
    let registry = registry(&ScriptedModel::new());

    let same = prompt_agent(&registry, "chef").define().unwrap_err();
    let named = prompt_agent(&registry, "chef")
        .prompt("cook", Value::Null)
        .define()
        .unwrap_err();

    assert_eq!(
        (same.status(), named.status()),
        (Status::NotFound, Status::NotFound)
    );
    assert!(
        same.message().contains("'chef'") && named.message().contains("'cook'"),
        "{same}, {named}"
    );
}

#[test]
fn a_prompt_that_does_not_render_with_its_input_is_found_out_at_once() {
    let registry = registry(&ScriptedModel::new());
    let picky = ContentSlot::computed(|scope| {
        let tone = scope.input.get("tone").and_then(Value::as_str).map(str::to_owned);
        std::future::ready(
            tone.map(Into::into)
                .ok_or_else(|| Error::invalid_argument("no tone").into()),
        )
    });
    PromptDefinition::new("reviewer")
        .system(picky)
        .define(&registry)
        .unwrap();

    let without = prompt_agent(&registry, "mute")
        .prompt("reviewer", json!({}))
        .define()
        .unwrap_err();
    let with = prompt_agent(&registry, "kind")
        .prompt("reviewer", json!({"tone": "kind"}))
        .define();

    assert_eq!(without.status(), Status::InvalidArgument);
    assert_eq!(without.message(), "agent 'mute': no tone");
    assert!(with.is_ok());
    assert!(registry.get("/agent/mute").is_none());
}

#[tokio::test]
async fn a_prompt_that_takes_its_time_is_not_tried_at_definition() {
    let (registry, model) = answering(["soup"]);
    let slow = ContentSlot::computed(|_scope| async {
        tokio::task::yield_now().await;
        Ok("slow".into())
    });
    PromptDefinition::new("cook")
        .system(slow)
        .define(&registry)
        .unwrap();

    let agent = prompt_agent(&registry, "chef")
        .prompt("cook", Value::Null)
        .define()
        .unwrap();
    agent.run_text("leeks").await.unwrap();

    assert_eq!(asked(&model.requests()[0])[0], "system: slow");
}

#[test]
fn a_template_with_a_mistake_is_found_out_at_once() {
    let registry = registry(&ScriptedModel::new());

    let error = agent(&registry, "chef")
        .system("You are {{#if name}}.")
        .define()
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(registry.get("/agent/chef").is_none());
}

#[tokio::test]
async fn the_last_prompt_and_the_last_prompt_input_win() {
    let model = ScriptedModel::new().reply("Fine.");
    let registry = registry(&model);
    for name in ["critic", "reviewer"] {
        PromptDefinition::new(name)
            .system(format!("A {name}. Be {{{{tone}}}}."))
            .define(&registry)
            .unwrap();
    }

    let agent = prompt_agent(&registry, "a")
        .prompt("critic", json!({"tone": "harsh"}))
        .prompt("reviewer", Value::Null)
        .prompt_input(json!({"tone": "kind"}))
        .define()
        .unwrap();
    agent.run_text("My soup?").await.unwrap();

    let system = model.requests()[0].messages.first().unwrap().text().into_owned();
    assert_eq!(system, "A reviewer. Be kind.");
}
