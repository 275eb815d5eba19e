//! Recorded: answers that cannot be used.

use everturn_ai::{FinishReason, reason, unusable_response};
use everturn_core::{Reason, Status};
use serde_json::json;

use crate::generate_support::{assert_fails_as_recorded, object_schema, recording, says, scripted, step};

#[tokio::test]
async fn a_blocked_answer_is_an_error_that_carries_it() {
    let blocked = json!({ "finishReason": "blocked", "finishMessage": "no" });
    let (_registry, _script, generate) = scripted([step(blocked.clone()), step(blocked)]);
    let generate = generate.prompt("p");

    let error = generate.clone().await.unwrap_err();
    let response = generate.allow_blocked().await.unwrap();

    assert_fails_as_recorded("blocked", &error);
    assert!(error.is(reason::GENERATION_BLOCKED));
    assert!(error.message().ends_with(": no"), "{error}");
    let carried = unusable_response(&error).expect("the error carries the response");
    assert_eq!(carried.finish_reason, Some(FinishReason::Blocked));
    assert_eq!(response.finish_reason(), FinishReason::Blocked);
}

#[tokio::test]
async fn an_answer_without_a_message() {
    let (_registry, _script, generate) = scripted([step(json!({ "finishReason": "stop" }))]);

    let error = generate.prompt("p").await.unwrap_err();

    assert_fails_as_recorded("no_message", &error);
    assert!(error.is(reason::NO_MESSAGE));
    assert!(error.message().contains("stop"), "{error}");
}

#[tokio::test]
async fn output_that_does_not_match_its_schema() {
    let Some(recorded) = recording("json_schema_mismatch") else {
        return;
    };
    let (_registry, _script, generate) = scripted([step(says("{\"a\": \"s\"}"))]);

    let error = generate
        .prompt("p")
        .output_schema(&object_schema("a", "number"))
        .await
        .unwrap_err();

    // Rule: INTERNAL, since the caller did nothing wrong. The recording has INVALID_ARGUMENT.
    assert_eq!(recorded["error"]["status"], "INVALID_ARGUMENT");
    assert_eq!(error.status(), Status::Internal);
    assert!(error.is(Reason::INVALID_OUTPUT));
    assert!(error.message().contains("/a"), "{error}");
}
