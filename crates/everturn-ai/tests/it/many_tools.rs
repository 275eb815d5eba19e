//! Two hundred tools in one request.

use everturn_ai::{Tool, ToolContext};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::generate_support::{message, request, says, scripted, step};

const COUNT: usize = 200;

#[derive(Deserialize, JsonSchema)]
struct Query {
    number: usize,
}

#[expect(clippy::disallowed_methods, reason = "the clock is paused")]
fn tools() -> impl Iterator<Item = Tool> {
    (0..COUNT).map(|own| {
        Tool::new(
            format!("tool{own}"),
            "Adds its own number.",
            move |query: Query, _cx: ToolContext| async move {
                // The later ones are done first.
                tokio::time::sleep(std::time::Duration::from_millis((COUNT - own) as u64)).await;
                Ok(query.number + own)
            },
        )
    })
}

#[tokio::test(start_paused = true)]
async fn all_run_at_once_and_answer_in_the_order_they_were_asked() {
    let asks = (0..COUNT)
        .map(|n| request(&format!("tool{n}"), &n.to_string(), json!({ "number": n })))
        .collect();
    let (_registry, script, generate) = scripted([step(message(Value::Array(asks))), step(says("done"))]);
    let started = tokio::time::Instant::now();

    let response = generate.prompt("p").tools(tools()).await.unwrap();

    assert_eq!(started.elapsed().as_millis(), COUNT as u128);
    assert_eq!(script.last_request()["tools"].as_array().unwrap().len(), COUNT);
    let answers = response
        .request
        .as_ref()
        .unwrap()
        .messages
        .last()
        .unwrap()
        .clone();
    let outputs: Vec<_> = answers
        .content()
        .iter()
        .map(|part| part.as_tool_response().unwrap().output.clone())
        .collect();
    assert_eq!(
        outputs,
        (0..COUNT).map(|n| Some(json!(2 * n))).collect::<Vec<_>>()
    );
}
