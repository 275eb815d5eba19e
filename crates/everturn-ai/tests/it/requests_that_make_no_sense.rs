//! Invalid requests are refused before a model is called.

use everturn_ai::{Generate, Part, reason, set_default_model};
use everturn_core::{Registry, Status};

use crate::generate_support::{says, scripted, step};

#[tokio::test]
async fn nothing_to_generate_from() {
    let (_registry, _script, generate) = scripted([]);

    assert_eq!(generate.await.unwrap_err().status(), Status::InvalidArgument);
}

#[tokio::test]
async fn no_model_and_an_unknown_model() {
    let registry = Registry::new();

    let none = Generate::new(&registry).prompt("p").await.unwrap_err();
    let unknown = Generate::new(&registry)
        .model("nobody")
        .prompt("p")
        .await
        .unwrap_err();

    assert_eq!(none.status(), Status::InvalidArgument);
    assert_eq!(unknown.status(), Status::NotFound);
    assert!(unknown.is(reason::MODEL_NOT_FOUND));
}

#[tokio::test]
async fn the_default_model_and_its_settings_are_used_when_none_is_named() {
    let (registry, script, _generate) = scripted([step(says("x"))]);
    let model = everturn_ai::ModelReference::new("programmableModel");
    set_default_model(
        &registry,
        model.with_config(serde_json::json!({ "temperature": 1 })),
    );

    Generate::new(&registry).prompt("p").await.unwrap();

    assert_eq!(
        script.last_request()["config"],
        serde_json::json!({ "temperature": 1 })
    );
}

#[tokio::test]
async fn an_unknown_tool_format_or_resource() {
    let (_registry, script, generate) = scripted([]);

    let tool = generate.clone().prompt("p").tool("hammer").await.unwrap_err();
    let format = generate
        .clone()
        .prompt("p")
        .output_format("yaml")
        .await
        .unwrap_err();
    let resource = generate.prompt(Part::resource("my://7")).await.unwrap_err();

    assert!(tool.is(reason::TOOL_NOT_FOUND), "{tool}");
    assert_eq!(format.status(), Status::InvalidArgument);
    assert!(resource.is(reason::RESOURCE_NOT_FOUND), "{resource}");
    assert_eq!(script.calls(), 0);
}
