//! The offline model answers every request, and equal requests equally.

use std::time::Duration;

use everturn_ai::{
    Generate, Message, Model, ModelRequest, OutputConfig, Part, Role, Tool, ToolChoice, ToolContext,
    ToolDefinition,
};
use everturn_core::{Context, Emitter, Registry, Schema};
use everturn_testkit::{Collector, OfflineModel};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

async fn answer(request: ModelRequest) -> String {
    let response = OfflineModel::new()
        .generate(request, Emitter::silent(), Context::new())
        .await
        .expect("it never fails");
    response.text().into_owned()
}

async fn reply_to(text: &str) -> String {
    answer(ModelRequest::new(Message::user(text))).await
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Forecast {
    city: String,
    days: u8,
}

#[tokio::test]
async fn small_talk_is_answered() {
    assert!(reply_to("Hello!").await.starts_with("Hello!"));
    assert_eq!(reply_to("Thank you").await, "You are welcome.");
    assert!(reply_to("What can you do?").await.contains("no tools here"));
    assert!(reply_to("Leeks are green.").await.contains("“Leeks are green.”"));
    assert!(reply_to("").await.contains("no text"));
}

#[tokio::test]
async fn the_model_remembers_the_conversation() {
    let conversation = [
        Message::user("I like leeks."),
        Message::model("Good."),
        Message::user("What did I say before?"),
    ];

    assert_eq!(
        answer(ModelRequest::new(conversation)).await,
        "So far you have said:\n- I like leeks."
    );
}

#[tokio::test]
async fn the_model_calls_a_tool_and_reports_its_answer() {
    let registry = Registry::new();
    OfflineModel::new().register(&registry, "offline").unwrap();
    let weather = Tool::new(
        "get_weather",
        "Tells the weather.",
        |asked: Forecast, _: ToolContext| async move {
            Ok(format!("{} days of rain in {}", asked.days, asked.city))
        },
    );

    let generate = Generate::new(&registry)
        .model("offline")
        .tool(weather)
        .prompt("The weather for 3 days in Bern?");
    let answer = generate.run().await.unwrap();

    assert_eq!(
        answer.text(),
        "The tool `get_weather` answered: 3 days of rain in Bern"
    );
}

#[tokio::test]
async fn help_names_the_tools() {
    let tool = ToolDefinition {
        name: "in_season".to_owned(),
        description: "Looks up vegetables.".to_owned(),
        ..ToolDefinition::default()
    };
    let request = ModelRequest {
        tools: Some([tool].into()),
        ..ModelRequest::new(Message::user("help"))
    };

    assert!(
        answer(request)
            .await
            .contains("- `in_season`: Looks up vegetables.")
    );
}

#[tokio::test]
async fn structured_output_has_the_requested_shape() {
    let output = |format: &str, schema: Value| {
        let output = OutputConfig {
            format: Some(format.to_owned()),
            schema: Some(schema),
            ..OutputConfig::default()
        };
        ModelRequest {
            output: Some(output),
            ..ModelRequest::new(Message::user("2 days in Bern"))
        }
    };
    let forecast = Schema::of::<Forecast>();

    let object = answer(output("json", forecast.as_json().clone())).await;
    let lines = answer(output(
        "jsonl",
        json!({"type": "array", "items": forecast.as_json()}),
    ))
    .await;
    let choice = answer(output("enum", json!({"enum": ["rain", "sun"]}))).await;

    assert_eq!(object, r#"{"city":"Bern","days":2}"#);
    assert_eq!(lines, object);
    assert_eq!(choice, "rain");
}

#[tokio::test(start_paused = true)]
async fn words_are_streamed_at_their_pace() {
    let chunks = Collector::new();
    let start = Instant::now();

    let model = OfflineModel::new().with_pace(Duration::from_millis(100));
    let request = ModelRequest::new(Message::user("Thanks!"));
    let response = model
        .generate(request, chunks.emitter(), Context::new())
        .await
        .unwrap();

    let texts: Vec<String> = chunks
        .take()
        .iter()
        .map(|chunk| chunk.text().into_owned())
        .collect();
    assert_eq!(texts.concat(), response.text());
    assert_eq!(
        start.elapsed(),
        Duration::from_millis(100) * u32::try_from(texts.len()).unwrap()
    );
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "object", "array", "string", "integer", "number", "#", "#/items", "null"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let key = prop::sample::select(vec![
            "type",
            "properties",
            "items",
            "required",
            "anyOf",
            "allOf",
            "enum",
            "$ref",
            "minItems",
            "maxLength",
            "minimum",
            "maximum",
            "a",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..5).prop_map(|members| {
                Value::Object(
                    members
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

fn request() -> impl Strategy<Value = ModelRequest> {
    let role = prop::sample::select(vec![Role::System, Role::User, Role::Model, Role::Tool]);
    let messages = prop::collection::vec((role, ".{0,40}"), 0..4);
    let choice = prop::sample::select(vec![None, Some(ToolChoice::Required), Some(ToolChoice::None)]);
    let format = prop::sample::select(vec![
        None,
        Some("json"),
        Some("jsonl"),
        Some("enum"),
        Some("text"),
    ]);
    (
        messages,
        prop::option::of(json_value()),
        choice,
        prop::option::of(json_value()),
        format,
    )
        .prop_map(|(messages, input_schema, tool_choice, schema, format)| {
            let tool = ToolDefinition {
                name: "a".to_owned(),
                input_schema,
                ..ToolDefinition::default()
            };
            let output = OutputConfig {
                format: format.map(str::to_owned),
                schema,
                ..OutputConfig::default()
            };
            let messages = messages
                .into_iter()
                .map(|(role, text)| Message::new(role, Part::text(text)));
            ModelRequest {
                messages: messages.collect(),
                tools: Some([tool].into()),
                tool_choice,
                output: Some(output),
                ..ModelRequest::default()
            }
        })
}

proptest! {
    #[test]
    fn every_request_gets_an_answer_and_always_the_same(request in request()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = || runtime.block_on(OfflineModel::new().generate(request.clone(), Emitter::silent(), Context::new()));

        let first = ask().unwrap();

        prop_assert!(first.message.is_some());
        prop_assert_eq!(first, ask().unwrap());
    }
}
