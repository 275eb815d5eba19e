//! The published cases can be parsed and scripted.

use everturn_testkit::{ScriptedModel, conformance};
use serde_json::json;

#[test]
fn the_cases_of_generate_have_replies() {
    let Some(cases) = conformance::cases("generate.yaml") else {
        return;
    };

    for case in &cases {
        let replies = conformance::replies(case).unwrap_or_else(|error| panic!("{}: {error}", case["name"]));
        assert_eq!(
            replies.len(),
            case["modelResponses"].as_array().unwrap().len(),
            "{}",
            case["name"]
        );
    }
    assert!(!cases.is_empty());
}

#[test]
fn every_step_of_the_agent_cases_can_be_scripted() {
    let Some(cases) = conformance::cases("agent.yaml") else {
        return;
    };

    let steps: Vec<_> = cases
        .iter()
        .flat_map(|case| case["steps"].as_array().cloned().unwrap_or_default())
        .collect();
    let model = ScriptedModel::new();
    for step in &steps {
        for reply in conformance::replies(step).unwrap_or_else(|error| panic!("{step}: {error}")) {
            model.push(reply);
        }
    }

    assert!(model.replies_left() > cases.len() / 2);
}

#[test]
fn recordings_are_json() {
    let Some(recorded) = conformance::load("observed/js-generate.json") else {
        return;
    };

    assert!(recorded.is_object() || recorded.is_array());
}

#[test]
#[should_panic(expected = "at /1: expected nothing, found {\"text\":\"b\"}")]
fn a_chunk_too_many_is_a_failure() {
    conformance::assert_chunks(
        &[json!({"text": "a"}), json!({"text": "b"})],
        &json!([{"text": "a"}]),
    );
}

#[test]
#[should_panic(expected = "at /message: expected {}, found nothing")]
fn a_missing_value_is_a_failure() {
    conformance::assert_contains(&json!({"usage": {}}), &json!({"message": {}}));
}
