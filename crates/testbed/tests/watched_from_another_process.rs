//! A background run of one server is watched through another that shares its file.
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod served;

use serde_json::{Value, json};

use self::served::Testbed;

/// The events of a streamed answer, whatever pieces it came in.
fn events(answer: &str) -> Vec<Value> {
    let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|json| serde_json::from_str(json).unwrap()).collect()
}

#[test]
fn chunks_of_a_run_in_one_process_are_shown_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("testbed.db").display());
    let (runs, elsewhere) = (Testbed::start(&store), Testbed::start(&store));
    let answers = json!({
        "responses": [{
            "message": {"role": "model", "content": [{"text": "Monday Tuesday"}]},
            "finishReason": "stop",
        }],
        "chunks": [[{"content": [{"text": "Monday "}]}, {"content": [{"text": "Tuesday"}]}]],
    });
    runs.program(&answers.to_string());
    let message = json!({"role": "user", "content": [{"text": "plan"}]});
    let detach = json!({"data": {"message": message, "detach": true}});

    let detached = runs.post("/promptAgentWithStore", &detach.to_string());
    let (_, detached) = detached.split_once("\r\n\r\n").unwrap();
    let detached: Value = serde_json::from_str(detached).unwrap();
    let run = json!({"data": {"snapshotId": detached["result"]["snapshotId"]}});
    let shown = elsewhere.post("/promptAgentWithStore/watch?stream=true", &run.to_string());

    let events = events(&shown);
    let texts: Vec<_> = events
        .iter()
        .filter_map(|event| event["message"]["modelChunk"]["content"][0]["text"].as_str())
        .collect();
    assert_eq!(texts, ["Monday ", "Tuesday"], "{shown}");
    assert_eq!(
        events.last().unwrap()["result"]["finishReason"],
        "stop",
        "{shown}"
    );
}
