//! Output as Rust types, whole and while it is streamed.

use everturn_ai::Generated;
use everturn_core::{Reason, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::generate_support::{constant, says, scripted, step, streaming};

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Recipe {
    name: String,
    minutes: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
enum Mood {
    Proud,
    Sad,
}

#[tokio::test]
async fn a_struct() {
    let (_registry, script, generate) = scripted([step(says("Here: {name: 'Soup', minutes: 20,}"))]);

    let reply: Generated<Recipe> = generate.prompt("p").output::<Recipe>().await.unwrap();

    assert_eq!(
        reply.output().unwrap(),
        Recipe {
            name: "Soup".to_owned(),
            minutes: 20
        }
    );
    assert_eq!(
        reply
            .request
            .as_ref()
            .unwrap()
            .output
            .as_ref()
            .unwrap()
            .format
            .as_deref(),
        Some("json")
    );
    assert_eq!(script.last_request()["output"], json!({ "constrained": false }));
}

#[tokio::test]
async fn a_list() {
    let (_registry, _script, generate) = scripted([step(says("[{\"name\": \"Soup\", \"minutes\": 20}]"))]);

    let reply = generate.prompt("p").output::<Vec<Recipe>>().await.unwrap();

    assert_eq!(reply.output().unwrap().len(), 1);
}

#[tokio::test]
async fn an_enumeration_and_a_string() {
    let (_registry, _script, generate) = scripted([step(says("\"Proud\"")), step(says("just words"))]);

    let mood = generate.clone().prompt("p").output::<Mood>().await.unwrap();
    let text = generate.prompt("p").output::<String>().await.unwrap();

    assert_eq!(mood.output().unwrap(), Mood::Proud);
    assert_eq!(text.output().unwrap(), "just words");
}

#[tokio::test]
async fn items_of_a_streamed_array_come_once_each() {
    let texts = [
        "[{\"name\": \"So",
        "up\", \"minutes\": 20}, {\"name\"",
        ": \"Pie\", \"minutes\": 40}]",
    ];
    let (_registry, _script, generate) = scripted([streaming(&texts, says(&texts.concat()))]);

    let mut stream = generate
        .prompt("p")
        .output_format("array")
        .output::<Vec<Recipe>>()
        .stream();
    let mut names = Vec::new();
    while let Some(chunk) = stream.next().await {
        names.extend(
            chunk
                .unwrap()
                .output()
                .unwrap_or_default()
                .into_iter()
                .map(|recipe| recipe.name),
        );
    }

    assert_eq!(names, ["Soup", "Pie"]);
    assert_eq!(stream.response().await.unwrap().output().unwrap().len(), 2);
}

#[tokio::test]
async fn a_partial_value_is_seen_before_it_is_a_whole_one() {
    let texts = ["{\"name\": \"Soup\"", ", \"minutes\": 20}"];
    let (_registry, _script, generate) = scripted([streaming(&texts, says(&texts.concat()))]);

    let mut stream = generate.prompt("p").output::<Recipe>().stream();
    let first = stream.next().await.unwrap().unwrap();
    let partial = (first.output_value(), first.output());
    let second = stream.next().await.unwrap().unwrap();

    assert_eq!(partial, (Some(json!({ "name": "Soup" })), None));
    assert_eq!(
        second.output(),
        Some(Recipe {
            name: "Soup".to_owned(),
            minutes: 20
        })
    );
}

#[tokio::test]
async fn an_answer_without_output_is_an_error() {
    let (_registry, _script, generate) = scripted([step(says("no JSON here"))]);

    let error = generate.prompt("p").await.unwrap().output().unwrap_err();

    assert_eq!(error.status(), Status::Internal);
    assert!(error.is(Reason::INVALID_OUTPUT));
}

#[tokio::test]
async fn the_last_output_type_and_the_last_tool_of_a_name_are_taken() {
    let (_registry, script, generate) = scripted([step(says("{name: 'Soup', minutes: 20}"))]);

    let reply = generate
        .prompt("p")
        .tool(constant("clock", "noon"))
        .tool(constant("clock", "midnight"))
        .output::<Mood>()
        .output::<Recipe>()
        .await
        .unwrap();

    assert_eq!(reply.output().unwrap().name, "Soup");
    assert_eq!(script.last_request()["tools"].as_array().unwrap().len(), 1);
}
