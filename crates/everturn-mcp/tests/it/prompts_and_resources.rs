//! Prompts and resources of an MCP server, used like one's own.

use everturn_ai::prompt::Prompt;
use everturn_ai::{Generate, Part, set_default_model};
use everturn_core::{ActionType, JsonCall, Status};
use everturn_testkit::EchoModel;
use serde_json::json;

use crate::support::kitchen_client;

#[tokio::test]
async fn a_prompt_is_rendered_by_its_server() {
    let (registry, _connections) = kitchen_client().await;

    let recipe = Prompt::lookup(&registry, "s/recipe").unwrap();
    let request = recipe
        .render(json!({ "dish": "leek soup", "guests": 4 }))
        .await
        .unwrap();

    let texts: Vec<_> = request
        .messages
        .iter()
        .map(|message| message.text().into_owned())
        .collect();
    assert_eq!(texts, ["You are a chef.", "leek soup for 4, please."]);
}

#[tokio::test]
async fn a_prompt_is_executed_with_a_model_of_the_client() {
    let (registry, _connections) = kitchen_client().await;
    EchoModel.register(&registry, "echo").unwrap();
    set_default_model(&registry, "echo");

    let recipe = Prompt::lookup(&registry, "s/recipe").unwrap();
    let reply = recipe
        .generate(json!({ "dish": "leek soup", "guests": 4 }))
        .await
        .unwrap();

    assert_eq!(reply.text(), "leek soup for 4, please.");
}

#[tokio::test]
async fn a_prompt_without_what_it_needs_is_refused() {
    let (registry, _connections) = kitchen_client().await;

    let action = registry.get("/prompt/s/recipe").unwrap();
    let refused = action
        .run_json(JsonCall::new(json!({ "dish": "soup" })))
        .await
        .unwrap_err();

    assert_eq!(refused.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn a_link_to_a_resource_is_exchanged_for_its_content() {
    let (registry, _connections) = kitchen_client().await;
    EchoModel.register(&registry, "echo").unwrap();
    set_default_model(&registry, "echo");
    let read = async |uri: &str| {
        let generate = Generate::new(&registry).prompt(vec![Part::resource(uri)]);
        generate.await.map(|reply| reply.text().into_owned())
    };

    assert_eq!(read("kitchen://menu").await.unwrap(), "Leek soup.");
    assert_eq!(read("recipe://leeks").await.unwrap(), "How to cook leeks.");
    assert_eq!(
        read("kitchen://cellar").await.unwrap_err().status(),
        Status::NotFound
    );
}

#[tokio::test]
async fn the_prompts_of_agents_are_not_exposed() {
    let (registry, _connections) = kitchen_client().await;

    let prompts = registry.of_type(&ActionType::PROMPT);

    assert_eq!(prompts.keys().collect::<Vec<_>>(), ["s/recipe"]);
}
