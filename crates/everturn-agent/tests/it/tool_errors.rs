//! Tool calls that fail: errors that the model can act on are passed to it, and the turn fails with the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentBuilder, InlinePrompt, agent};
use everturn_ai::{ModelRequest, Replay, Tool, ToolContext, ToolErrors, metadata};
use everturn_core::{Error, Reason, Status};
use everturn_testkit::{Reply, ScriptedModel};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::prompt_support::{call, registry};

#[derive(Deserialize, JsonSchema)]
struct Order {
    number: u32,
}

/// A tool that fails with an error of the test.
fn order(error: Error) -> Tool {
    Tool::new("order", "Looks up an order.", move |_: Order, _: ToolContext| {
        let error = error.clone();
        async move { Err::<String, _>(error.into()) }
    })
    // It only reads, so its failure leaves no doubt.
    .with_replay(Replay::Idempotent)
}

/// A model that requests a tool once, and then repeats the tool's answer.
fn asking(tool: &'static str, input: Value) -> ScriptedModel {
    ScriptedModel::new().otherwise(move |request| match told(request) {
        None => Reply::from(call(tool, "c", input.clone())),
        Some(answer) => Reply::text(answer.to_string()),
    })
}

/// The output of the last tool answer in a request.
fn told(request: &ModelRequest) -> Option<Value> {
    let last = request.messages.last()?;
    last.content().last()?.as_tool_response()?.output.clone()
}

fn support(model: &ScriptedModel, tool: Tool) -> AgentBuilder<Value, InlinePrompt> {
    agent(&registry(model), "support")
        .tool(tool)
        .store(MemoryStore::new())
}

async fn said(agent: AgentBuilder<Value, InlinePrompt>) -> Result<Value, Error> {
    let reply = agent.define().unwrap().run_text("Where is my order?").await?;
    Ok(serde_json::from_str(&reply.text()).unwrap())
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_with_the_complaint_of_the_schema() {
    let model = asking("order", json!({"number": "seventeen"}));

    let answer = said(support(&model, order(Error::internal("never called"))))
        .await
        .unwrap();

    assert_eq!(answer["error"]["status"], "INVALID_ARGUMENT");
    let complaint = answer["error"]["message"].as_str().unwrap();
    assert!(complaint.contains("/number"), "{complaint}");
    let request = model.last_request().unwrap();
    let part = &request.messages.last().unwrap().content()[0];
    assert_eq!(part.metadata_entry(metadata::IS_ERROR), Some(&json!(true)));
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_names_of_the_others_and_the_others_of_the_round_run() {
    let model = ScriptedModel::new().otherwise(|request| match told(request) {
        None => Reply::tools([
            call("refund", "1", json!({})),
            call("order", "2", json!({"number": 7})),
        ]),
        Some(_) => Reply::text(serde_json::to_string(request.messages.last().unwrap().content()).unwrap()),
    });
    let order = Tool::new(
        "order",
        "Looks up an order.",
        |input: Order, _: ToolContext| async move { Ok(format!("order {} is on its way", input.number)) },
    );

    let answers = said(support(&model, order)).await.unwrap();

    let unknown = &answers[0]["toolResponse"];
    assert_eq!(unknown["name"], "refund");
    assert_eq!(
        unknown["output"]["error"]["message"],
        "there is no tool 'refund'; the tools are: order"
    );
    assert_eq!(answers[1]["toolResponse"]["output"], "order 7 is on its way");
}

#[tokio::test]
async fn mistakes_of_the_model_end_the_turn_when_it_does_not_learn_from_three() {
    let rounds = Arc::new(AtomicU32::new(0));
    let asked = Arc::clone(&rounds);
    let model = ScriptedModel::new().otherwise(move |_| {
        asked.fetch_add(1, Ordering::Relaxed);
        call("refund", "r", json!({}))
    });
    let agent = support(&model, order(Error::internal("never called"))).max_rounds(20);

    let error = said(agent).await.unwrap_err();

    assert_eq!(error.status(), Status::NotFound);
    assert!(error.message().contains("'refund'"), "{error}");
    assert_eq!(rounds.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn an_error_with_a_clients_status_is_passed_on_with_its_public_message() {
    let missing = Error::not_found("no row 7 in shard 3").with_public_message("there is no order 7");
    let silent = Error::permission_denied("the row belongs to tenant 9");
    for (error, status, words) in [
        (missing, "NOT_FOUND", "there is no order 7"),
        (silent, "PERMISSION_DENIED", "permission denied"),
    ] {
        let model = asking("order", json!({"number": 7}));

        let answer = said(support(&model, order(error))).await.unwrap();

        assert_eq!(answer, json!({"error": {"status": status, "message": words}}));
    }
}

#[tokio::test]
async fn an_error_for_the_model_is_passed_on_whatever_its_status() {
    let model = asking("order", json!({"number": 7}));
    let busy = Error::unavailable("the warehouse is closed until nine").for_model();

    let answer = said(support(&model, order(busy))).await.unwrap();

    assert_eq!(answer["error"]["message"], "the warehouse is closed until nine");
}

#[tokio::test]
async fn any_other_error_fails_the_turn_and_keeps_status_reason_and_public_words() {
    const BROKEN: Reason = Reason::new("broken-shelf");
    let broken = Error::unavailable("shard 3 is down")
        .with_public_message("try again later")
        .with_details(json!({"shelf": 3}))
        .with_reason(BROKEN);
    let model = asking("order", json!({"number": 7}));

    let error = said(support(&model, order(broken))).await.unwrap_err();

    assert_eq!(error.status(), Status::Unavailable);
    assert_eq!(error.details().unwrap()["reason"], BROKEN.name());
    assert_eq!(error.details().unwrap()["shelf"], 3);
    assert_eq!(error.message(), "try again later");
}

#[tokio::test]
async fn an_agent_chooses_to_tell_all_errors_or_none() {
    let model = asking("order", json!({"number": 7}));
    let down = || order(Error::internal("shard 3 is down"));

    let told = said(support(&model, down()).tool_errors(ToolErrors::Tell))
        .await
        .unwrap();
    let strict = said(support(&model, order(Error::not_found("none"))).tool_errors(ToolErrors::Strict)).await;

    assert_eq!(
        told,
        json!({"error": {"status": "INTERNAL", "message": "internal error"}})
    );
    let strict = strict.unwrap_err();
    assert_eq!(strict.status(), Status::Internal);
    assert!(strict.message().contains("tool 'order' failed"), "{strict}");
}
