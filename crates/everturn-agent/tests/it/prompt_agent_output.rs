//! Agents whose answers are data.

use everturn_agent::agent;
use everturn_ai::{ConstrainedSupport, ModelInfo, ModelSupports};
use everturn_core::{Reason, Status};
use everturn_testkit::ScriptedModel;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::prompt_support::{answering, asked, registry, said};

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Recipe {
    dish: String,
    minutes: u32,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Taste {
    Sweet,
    Sour,
}

#[tokio::test]
async fn the_model_is_told_the_schema_and_the_answer_is_read() {
    let supports = ModelSupports {
        constrained: Some(ConstrainedSupport::All),
        ..ModelSupports::default()
    };
    let info = ModelInfo {
        supports: Some(supports),
        ..ModelInfo::default()
    };
    let model = ScriptedModel::new()
        .with_info(info)
        .reply(r#"{"dish": "soup", "minutes": 20}"#);
    let agent = agent(&registry(&model), "chef")
        .output::<Recipe>()
        .define()
        .unwrap();

    let reply = agent.run_text("leeks").await.unwrap();

    assert_eq!(
        reply.data::<Recipe>().unwrap(),
        Recipe {
            dish: "soup".to_owned(),
            minutes: 20
        }
    );
    model.assert_asked(
        0,
        &json!({"output": {"format": "json", "schema": {"properties": {"dish": {}, "minutes": {}}}}}),
    );
}

#[tokio::test]
async fn an_answer_that_does_not_fit_fails_the_turn_and_is_not_kept() {
    let (registry, _model) = answering([r#"{"dish": "soup"}"#, r#"{"dish": "stew", "minutes": 90}"#]);
    let agent = agent(&registry, "chef").output::<Recipe>().define().unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let failed = chat.run("leeks").await.unwrap_err();
    let reply = chat.run("beef").await.unwrap();

    assert_eq!(failed.status(), Status::Internal);
    assert!(
        failed.message().starts_with("generate: ") && failed.message().contains("minutes"),
        "{failed}"
    );
    assert_eq!(reply.data::<Recipe>().unwrap().dish, "stew");
    assert_eq!(reply.state().unwrap().messages.len(), 3);
}

#[tokio::test]
async fn a_choice_is_read_as_what_was_chosen() {
    let (registry, _model) = answering(["sour"]);
    let agent = agent(&registry, "taster")
        .output::<Taste>()
        .output_format("enum")
        .define()
        .unwrap();

    let reply = agent.run_text("lemon").await.unwrap();

    assert_eq!(reply.data::<Taste>().unwrap(), Taste::Sour);
}

#[tokio::test]
async fn json_in_a_plain_answer_is_found_and_anything_else_is_an_error() {
    let (registry, _model) = answering(["Here: {\"dish\": \"soup\", \"minutes\": 20}. Enjoy!", "Soup."]);
    let agent = agent(&registry, "chef").define().unwrap();

    let found = agent.run_text("leeks").await.unwrap();
    let words = agent.run_text("leeks").await.unwrap();

    assert_eq!(found.data::<Recipe>().unwrap().minutes, 20);
    assert!(found.data::<Taste>().unwrap_err().is(Reason::INVALID_OUTPUT));
    assert!(words.data::<Recipe>().unwrap_err().is(Reason::INVALID_OUTPUT));
}

#[tokio::test]
async fn the_words_about_the_format_are_told_every_turn_and_never_kept() {
    let model = ScriptedModel::new().otherwise(|_| r#"{"dish": "soup", "minutes": 20}"#);
    let agent = agent(&registry(&model), "chef")
        .output::<Recipe>()
        .output_instructions("JSON!")
        .define()
        .unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    chat.run("leeks").await.unwrap();
    let first = chat.messages().lineage().id();
    chat.run("beef").await.unwrap();

    let requests = model.requests();
    assert_eq!(asked(&requests[0]), ["user: leeks JSON!"]);
    assert_eq!(asked(&requests[1])[2], "user: beef JSON!");
    let kept = said(chat.messages());
    assert_eq!(
        (kept[0].as_str(), kept[2].as_str()),
        ("user: leeks", "user: beef")
    );
    assert_eq!(chat.messages().lineage().id(), first);
}
