//! The agreed cases of the protocol that the published selection omits.

use std::io::Write;

use everturn_agent::store::MemoryStore;
use serde_json::{Value, json};
use testbed::conformance::run_all;

fn case(name: &str, agent: &str, steps: impl IntoIterator<Item = Value>) -> Value {
    json!({"name": name, "agent": agent, "steps": steps.into_iter().collect::<Vec<_>>()})
}

/// A step that sends inputs, and its other fields.
fn send(inputs: &Value, rest: &Value) -> Value {
    let mut step = json!({"type": "send", "inputs": inputs});
    step.as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    step
}

fn user(text: &str) -> Value {
    json!({"message": {"role": "user", "content": [{"text": text}]}})
}

fn answer(text: &str) -> Value {
    json!({"message": {"role": "model", "content": [{"text": text}]}, "finishReason": "stop"})
}

/// A model's tool request that asks a person, once per reference.
fn asking(references: &[&str]) -> Value {
    let ask = |reference| json!({"toolRequest": {"name": "interruptTool", "input": {"query": "?"}, "ref": reference}});
    let content: Vec<Value> = references.iter().map(ask).collect();
    json!({"message": {"role": "model", "content": content}, "finishReason": "stop"})
}

fn response(name: &str, reference: &str) -> Value {
    json!({"toolResponse": {"name": name, "ref": reference, "output": {"answer": "yes"}}})
}

fn interrupts() -> [Value; 2] {
    [
        case(
            "respond for an unknown tool",
            "promptAgentWithInterrupt",
            [
                send(
                    &json!([user("go")]),
                    &json!({"modelResponses": [asking(&["1"])], "captureSnapshotId": "one"}),
                ),
                send(
                    &json!([{"resume": {"respond": [response("anotherTool", "1")]}}]),
                    &json!({
                        "init": {"snapshotId": "{{one}}"},
                        "modelResponses": [answer("never said")],
                        "expectOutput": {
                            "finishReason": "failed",
                            "errorContains": {"status": "INVALID_ARGUMENT", "message": "not found in session history"},
                        },
                    }),
                ),
            ],
        ),
        case(
            "two interrupts in one message",
            "promptAgentWithInterrupt",
            [
                send(
                    &json!([user("go")]),
                    &json!({
                        "modelResponses": [asking(&["1", "2"])],
                        "expectOutput": {
                            "finishReason": "interrupted",
                            "message": {"content": [{"toolRequest": {"ref": "1"}}, {"toolRequest": {"ref": "2"}}]},
                        },
                        "captureSnapshotId": "one",
                    }),
                ),
                send(
                    &json!([{"resume": {"respond": [response("interruptTool", "2"), response("interruptTool", "1")]}}]),
                    &json!({
                        "init": {"snapshotId": "{{one}}"},
                        "modelResponses": [answer("both")],
                        "expectOutput": {"finishReason": "stop", "message": {"content": [{"text": "both"}]}},
                    }),
                ),
            ],
        ),
    ]
}

fn custom_state() -> [Value; 2] {
    [
        case(
            "several changes of custom state in one turn",
            "customAgentWithMultiCustomState",
            [send(
                &json!([user("go")]),
                &json!({
                    "expectChunks": [
                        {"customPatch": [{"op": "replace", "path": "", "value": {"counter": 1, "status": "working"}}]},
                        {"customPatch": [{"op": "replace", "path": "/counter", "value": 2}]},
                        {"customPatch": [{"op": "replace", "path": "/status", "value": "done"}]},
                        {"turnEnd": {}},
                    ],
                    "expectOutput": {"stateContains": {"custom": {"counter": 2, "status": "done"}}},
                }),
            )],
        ),
        case(
            "a detached run streams nothing and still changes the state",
            "customAgentWithCustomStateStore",
            [
                send(
                    &json!([{"message": user("go")["message"], "detach": true}]),
                    &json!({"expectChunks": [], "captureSnapshotId": "one"}),
                ),
                json!({
                    "type": "waitUntilCompleted", "snapshotId": "{{one}}",
                    "expectSnapshot": {"status": "completed", "stateContains": {"custom": {"counter": 1}}},
                }),
            ],
        ),
    ]
}

fn background() -> [Value; 2] {
    let abort =
        |previous: &str| json!({"type": "abort", "snapshotId": "{{one}}", "expectPreviousStatus": previous});
    let aborted =
        json!({"type": "getSnapshotData", "snapshotId": "{{one}}", "expectSnapshot": {"status": "aborted"}});
    [
        case(
            "a detach without a message",
            "customAgentBlocking",
            [
                send(
                    &json!([user("work"), {"detach": true}]),
                    &json!({
                        "expectOutput": {"hasSnapshotId": true, "finishReason": "detached"},
                        "captureSnapshotId": "one",
                    }),
                ),
                json!({
                    "type": "getSnapshotData", "snapshotId": "{{one}}",
                    "expectSnapshot": {"status": "pending"},
                }),
                abort("pending"),
                aborted.clone(),
            ],
        ),
        case(
            "an abort of what is aborted",
            "customAgentBlocking",
            [
                send(
                    &json!([{"message": user("work")["message"], "detach": true}]),
                    &json!({"captureSnapshotId": "one"}),
                ),
                abort("pending"),
                abort("aborted"),
                aborted,
            ],
        ),
    ]
}

fn sessions() -> [Value; 2] {
    let begin = |session: &str| {
        let rest = json!({
            "init": {"sessionId": session}, "modelResponses": [answer("one!")], "captureSnapshotId": "one",
        });
        send(&json!([user("one")]), &rest)
    };
    [
        case(
            "a session id of any form",
            "promptAgentWithStore",
            [
                begin("Ann's kitchen, 2nd floor"),
                json!({
                    "type": "getSnapshotData", "sessionId": "Ann's kitchen, 2nd floor",
                    "expectSnapshot": {
                        "status": "completed", "stateContains": {"sessionId": "Ann's kitchen, 2nd floor"},
                    },
                }),
            ],
        ),
        case(
            "a snapshot id with its own session id",
            "promptAgentWithStore",
            [
                begin("kitchen"),
                send(
                    &json!([user("two")]),
                    &json!({
                        "init": {"snapshotId": "{{one}}", "sessionId": "kitchen"},
                        "modelResponses": [answer("two!")],
                        "captureSnapshotId": "two",
                    }),
                ),
                json!({
                    "type": "getSnapshotData", "snapshotId": "{{two}}", "sessionId": "kitchen",
                    "expectSnapshot": {
                        "parentId": "{{one}}",
                        "stateContains": {"messages": [{"role": "user"}, {"role": "model"}, {"role": "user"}]},
                    },
                }),
            ],
        ),
    ]
}

#[tokio::test]
async fn every_other_agreed_case_holds() {
    let cases = [interrupts(), custom_state(), background(), sessions()].concat();

    let report = run_all(&cases, MemoryStore::new).await.unwrap();

    write!(std::io::stderr(), "\n{report}").unwrap();
    assert_eq!(report.cases(), 8);
    assert_eq!(report.failures().count(), 0, "\n{report}");
}
