//! The chunks of a turn that a client sees.

use everturn_agent::agent;
use everturn_ai::{NoInput, Tool, ToolContext};
use everturn_testkit::{Reply, contains_each};
use serde_json::json;

use crate::prompt_support::{answering, call, fresh, invoke, json};

#[tokio::test]
async fn chunks_of_the_model_and_answers_of_tools_come_in_order() {
    let (registry, _model) = answering([
        Reply::from(call("look", "r", json!({}))).chunk("Let me "),
        Reply::text("Leeks.").chunk("Le").chunk("eks."),
    ]);
    let look = Tool::new("look", "Looks.", |_: NoInput, _: ToolContext| async {
        Ok("leeks")
    });
    let agent = agent(&registry, "chef")
        .system("sys")
        .tool(look)
        .define()
        .unwrap();

    let (chunks, _output) = invoke(agent.connect(fresh()), "what is there?").await;

    let chunks: Vec<_> = chunks.iter().map(json).collect();
    let expected = [
        json!({"modelChunk": {"role": "model", "content": [{"text": "Let me "}]}}),
        json!({"modelChunk": {"role": "tool", "content": [{"toolResponse": {"name": "look", "output": "leeks"}}]}}),
        json!({"modelChunk": {"role": "model", "content": [{"text": "Le"}]}}),
        json!({"modelChunk": {"role": "model", "content": [{"text": "eks."}]}}),
        json!({"turnEnd": {}}),
    ];
    assert_eq!(contains_each(&chunks, &expected), Ok(()), "{chunks:#?}");
}

#[tokio::test]
async fn the_model_is_told_that_somebody_listens() {
    let (registry, model) = answering(["soup"]);
    let agent = agent(&registry, "chef").define().unwrap();

    agent.run_text("leeks").await.unwrap();

    assert!(model.calls()[0].is_streaming);
}
