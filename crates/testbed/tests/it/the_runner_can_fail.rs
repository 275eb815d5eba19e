//! The runner detects deviations from a case. Each case here is wrong in one place.

use everturn_agent::store::MemoryStore;
use serde_json::{Value, json};
use testbed::conformance::{self, Failure};
use testbed::{Harness, harness};

fn bed() -> Harness {
    harness(MemoryStore::new()).unwrap()
}

async fn verdict(harness: &Harness, agent: &str, steps: Value) -> Result<(), Failure> {
    let case = json!({"name": "a case", "description": "for people", "agent": agent, "steps": steps});
    conformance::run(&case, harness).await
}

/// A step that sends `hi` and receives `hello`, with these expectations.
fn send(expectations: &Value) -> Value {
    let mut step = json!({
        "type": "send",
        "inputs": [{"message": {"role": "user", "content": [{"text": "hi"}]}}],
        "modelResponses": [{"message": {"role": "model", "content": [{"text": "hello"}]}, "finishReason": "stop"}],
        "streamChunks": [[{"index": 0, "role": "model", "content": [{"text": "hel"}]}]],
    });
    step.as_object_mut()
        .unwrap()
        .extend(expectations.as_object().unwrap().clone());
    step
}

#[tokio::test]
async fn a_true_expectation_passes() {
    let bed = bed();
    let expectations = json!({
        "expectChunks": [{"modelChunk": {"content": [{"text": "hel"}]}}, {"turnEnd": {}}],
        "expectOutput": {
            "finishReason": "stop", "hasSessionId": true, "hasSnapshotId": false,
            "message": {"content": [{"text": "hello"}]},
            "stateContains": {"messages": [{"role": "user"}, {"role": "model"}]},
        },
    });

    assert_eq!(
        verdict(&bed, "promptAgent", json!([send(&expectations)])).await,
        Ok(())
    );
}

#[tokio::test]
async fn a_wrong_expectation_of_a_send_is_noticed() {
    let bed = bed();
    let wrong = [
        (json!({"expectChunks": []}), "chunks: at /0: expected nothing"),
        (
            json!({"expectChunks": [{"modelChunk": {}}]}),
            "chunks: at /1: expected nothing",
        ),
        (
            json!({"expectChunks": [{"turnEnd": {}}, {"modelChunk": {}}]}),
            "chunks: at /0/turnEnd",
        ),
        (
            json!({"expectChunks": [{}, {"turnEnd": {"finishReason": "length"}}]}),
            "chunks: at /1/turnEnd/finishReason",
        ),
        (
            json!({"expectOutput": {"finishReason": "length"}}),
            "finishReason should be \"length\" and is \"stop\"",
        ),
        (
            json!({"expectOutput": {"message": {"content": [{"text": "bye"}]}}}),
            "message: at /content/0/text",
        ),
        (
            json!({"expectOutput": {"hasSnapshotId": true}}),
            "there should be a snapshotId",
        ),
        (
            json!({"expectOutput": {"hasSessionId": false}}),
            "there should be no sessionId",
        ),
        (
            json!({"expectOutput": {"stateContains": {"messages": [{"role": "model"}, {"role": "user"}]}}}),
            "state: ",
        ),
        (
            json!({"expectOutput": {"artifactsContain": [{"name": "doc1"}]}}),
            "there is no artifact \"doc1\"",
        ),
        (
            json!({"expectOutput": {"errorContains": {"message": "no"}}}),
            "there is no error",
        ),
        (json!({"expectOutput": {"novelty": 1}}), "unknown field `novelty`"),
        (json!({"expectNovelty": 1}), "unknown field `expectNovelty`"),
        (
            json!({"expectError": {"status": "INTERNAL"}}),
            "an error was expected",
        ),
        (
            json!({"captureSnapshotId": "id"}),
            "there is no snapshotId to capture",
        ),
        (
            json!({"init": {"sessionId": "s"}}),
            "it failed with FailedPrecondition",
        ),
        (
            json!({"init": {"sessionId": "s"}, "expectError": {"status": "NOT_FOUND"}}),
            "the status should be",
        ),
        (
            json!({"init": {"sessionId": "s"}, "expectError": {"message": "moon"}}),
            "the message should contain 'moon'",
        ),
        (json!({"init": {"moon": 1}}), "it failed with InvalidArgument"),
    ];

    for (expectations, problem) in wrong {
        let failure = verdict(&bed, "promptAgent", json!([send(&expectations)]))
            .await
            .unwrap_err();
        assert_eq!(failure.step, 1);
        assert!(
            failure.problem.contains(problem),
            "{expectations} gave: {failure}"
        );
    }
}

#[tokio::test]
async fn a_wrong_expectation_of_a_snapshot_is_noticed() {
    let bed = bed();
    let wrong = [
        (
            json!({"expectSnapshot": {"status": "failed"}}),
            "status should be \"failed\" and is \"completed\"",
        ),
        (
            json!({"expectSnapshot": {"finishReason": "length"}}),
            "finishReason should be",
        ),
        (
            json!({"expectSnapshot": {"parentId": "p"}}),
            "parentId should be \"p\" and is absent",
        ),
        (
            json!({"expectSnapshot": {"hasSessionId": false}}),
            "there should be no sessionId",
        ),
        (
            json!({"expectSnapshot": {"stateContains": {"custom": {"counter": 7}}}}),
            "state: ",
        ),
        (
            json!({"expectSnapshot": {"errorContains": {}}}),
            "there is no error",
        ),
        (json!({"expectError": {}}), "an error was expected"),
    ];

    for (expectations, problem) in wrong {
        let mut read = json!({"type": "getSnapshotData", "snapshotId": "{{id}}"});
        read.as_object_mut()
            .unwrap()
            .extend(expectations.as_object().unwrap().clone());
        let steps = json!([send(&json!({"captureSnapshotId": "id"})), read]);
        let failure = verdict(&bed, "promptAgentWithStore", steps).await.unwrap_err();
        assert_eq!(failure.step, 2);
        assert!(
            failure.problem.contains(problem),
            "{expectations} gave: {failure}"
        );
    }
}

#[tokio::test]
async fn a_wrong_previous_status_is_noticed() {
    let bed = bed();
    let abort =
        |expected: Value| json!({"type": "abort", "snapshotId": "{{id}}", "expectPreviousStatus": expected});

    for expected in [json!("pending"), json!(null)] {
        let steps = json!([send(&json!({"captureSnapshotId": "id"})), abort(expected)]);
        let failure = verdict(&bed, "promptAgentWithStore", steps).await.unwrap_err();
        assert!(
            failure.problem.contains("the previous status should be"),
            "{failure}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_endless_run_times_out() {
    let bed = bed();
    let detached = json!({
        "type": "send",
        "inputs": [{"message": {"role": "user", "content": [{"text": "work"}]}, "detach": true}],
        "captureSnapshotId": "id",
    });
    let wait = json!({"type": "waitUntilCompleted", "snapshotId": "{{id}}", "timeoutMs": 100});

    let failure = verdict(&bed, "customAgentBlocking", json!([detached, wait]))
        .await
        .unwrap_err();

    assert_eq!(
        failure,
        Failure {
            step: 2,
            problem: "the run is still pending after 100 ms".to_owned()
        }
    );
}

#[tokio::test]
async fn an_agent_that_is_not_there_and_a_step_that_is_none_are_noticed() {
    let bed = bed();
    let nobody = verdict(&bed, "nobody", json!([])).await.unwrap_err();
    let dance = verdict(&bed, "promptAgent", json!([{"type": "dance"}]))
        .await
        .unwrap_err();

    assert_eq!(nobody.to_string(), "step 0: the harness has no agent 'nobody'");
    assert!(dance.problem.contains("this is not a step"), "{dance}");
}
