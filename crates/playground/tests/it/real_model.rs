//! A conversation with a real model, in which the process is killed between the turns.
//!
//! `./test` serves a tiny local model, whose address is in `EVERTURN_TEST_MODEL`. Its answers vary, so the
//! test asserts structure and flow, never contents.

use std::path::Path;

use everturn::prelude::{Value, json};

use crate::program::{Server, has_curl, post};

fn messages_of<'a>(snapshot: &'a Value, role: &str) -> Vec<&'a Value> {
    let messages = snapshot["state"]["messages"].as_array().unwrap();
    messages
        .iter()
        .filter(|message| message["role"] == role)
        .collect()
}

/// The behaviour of the model that prevented the test.
struct Unsuitable(String);

/// Runs three turns in a session, each on another server that is killed after it.
fn talk(folder: &Path, model: &str, session: &str) -> Result<(), Unsuitable> {
    let turns = [
        "Use a tool: put leeks into the pantry.",
        "Use a tool: put peas into the pantry.",
        "What is in the pantry?",
    ];
    for (turn, text) in turns.into_iter().enumerate() {
        let variables = [("OPENAI_BASE_URL", model)];
        let server = Server::start_with(folder, &["--addr", "127.0.0.1:0"], &variables);
        assert!(
            server.greeting.contains("The model is openai/smollm2-135m"),
            "{}",
            server.greeting
        );

        let message = json!({ "role": "user", "content": [{ "text": text }] });
        let body = json!({ "data": { "message": message }, "init": { "sessionId": session } });
        let answer = post(&server, "/agents/chef", &body);
        if answer["result"]["error"]["details"]["httpStatus"] == 400 {
            return Err(Unsuitable(format!("the answer filled the context: {answer}")));
        }
        assert!(answer["result"]["message"].is_object(), "{answer}");
        let look = json!({ "data": { "sessionId": session } });
        let snapshot = post(&server, "/agents/chef/getSnapshot", &look)["result"].take();

        assert_eq!(messages_of(&snapshot, "user").len(), turn + 1, "{snapshot}");
        if turn == 0 && messages_of(&snapshot, "tool").is_empty() {
            return Err(Unsuitable(format!("it called no tool: {snapshot}")));
        }
        server.signal("-KILL");
    }
    Ok(())
}

#[test]
fn a_conversation_survives_its_process_between_turns() {
    let Ok(model) = std::env::var("EVERTURN_TEST_MODEL") else {
        println!("skipped: no real model is served here; `./test` does so where `../shared/llm` is present");
        return;
    };
    if !has_curl() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The model samples at random and sometimes fills its context, which its server then rejects.
    let mut whims = Vec::new();
    for attempt in 1..=6 {
        match talk(folder.path(), &model, &format!("supper-{attempt}")) {
            Ok(()) => return,
            Err(Unsuitable(whim)) => whims.push(whim),
        }
    }
    panic!("the model never played along: {whims:#?}");
}
