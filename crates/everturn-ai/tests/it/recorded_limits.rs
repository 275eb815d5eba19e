//! Recorded: how often tools are run.

use everturn_ai::reason;
use everturn_core::Status;
use serde_json::json;

use crate::generate_support;
use crate::generate_support::{
    assert_fails_as_recorded, comparable, constant, message, recording, request, scripted, step,
};

/// A model that asks for a tool however often it is called.
fn insatiable() -> impl Iterator<Item = generate_support::Step> {
    (0..60).map(|_| step(message(json!([request("t", "1", json!({}))]))))
}

#[tokio::test]
async fn one_round() {
    let (_registry, script, generate) = scripted(insatiable());

    let error = generate
        .prompt("p")
        .tool(constant("t", "o"))
        .max_rounds(1)
        .await
        .unwrap_err();

    assert_fails_as_recorded("max_turns_1", &error);
    assert!(error.is(reason::MAX_ROUNDS_EXCEEDED));
    assert!(error.message().ends_with("(1)"), "{error}");
    assert_eq!(script.calls(), 2);
}

#[tokio::test]
async fn no_rounds_is_honoured() {
    let (_registry, script, generate) = scripted(insatiable());

    let error = generate
        .prompt("p")
        .tool(constant("t", "o"))
        .max_rounds(0)
        .await
        .unwrap_err();

    assert_fails_as_recorded("max_turns_0", &error);
    assert!(error.message().ends_with("(0)"), "{error}");
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn five_rounds_end_as_recorded() {
    let Some(recorded) = recording("max_turns_default_model_calls") else {
        return;
    };
    let (_registry, script, generate) = scripted(insatiable());

    // The default of the recorded package.
    let generate = generate.prompt("p").tool(constant("t", "o")).max_rounds(5);
    let error = generate.await.unwrap_err();

    assert_fails_as_recorded("max_turns_default_model_calls", &error);
    assert!(error.message().ends_with("(5)"), "{error}");
    assert_eq!(json!(script.calls()), recorded["modelCalls"]);
}

#[tokio::test]
async fn the_default_limit_is_fifty_rounds() {
    let (_registry, script, generate) = scripted(insatiable());

    let error = generate.prompt("p").tool(constant("t", "o")).await.unwrap_err();

    assert_eq!(error.status(), Status::Aborted);
    assert_eq!(
        error.details(),
        Some(&json!({
            "limit": {"per": "turn", "of": "toolRounds", "max": 50},
            "reason": "max-turns-exceeded",
            "retryable": false,
        }))
    );
    assert_eq!(script.calls(), 51);
}

#[tokio::test]
async fn tool_requests_given_back() {
    let Some(recorded) = recording("return_tool_requests") else {
        return;
    };
    let (_registry, _script, generate) = scripted(insatiable());

    let response = generate
        .prompt("p")
        .tool(constant("t", "o"))
        .return_tool_requests(true)
        .await
        .unwrap();

    assert_eq!(response.tool_requests().count(), 1);
    assert_eq!(comparable(json!(response.into_response())), recorded);
}
