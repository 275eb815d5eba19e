//! A conversation with a real model, in which the process is killed between the turns.
//!
//! `./test` serves the model, tiny and on this machine, and says where: `EVERTURN_TEST_MODEL`. It is not wise, so shape and
//! flow are asserted, never what it says.

use std::path::Path;

use everturn::prelude::{Value, json};

use crate::program::{Server, has_curl, post};

fn said<'a>(snapshot: &'a Value, role: &str) -> Vec<&'a Value> {
    let messages = snapshot["state"]["messages"].as_array().unwrap();
    messages
        .iter()
        .filter(|message| message["role"] == role)
        .collect()
}

/// What the model kept from being tried.
struct Whim(String);

/// Talks for three turns in a session, each to a server of its own that is killed after it.
fn talk(folder: &Path, model: &str, session: &str) -> Result<(), Whim> {
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
            return Err(Whim(format!("it said more than it can read: {answer}")));
        }
        assert!(answer["result"]["message"].is_object(), "{answer}");
        let look = json!({ "data": { "sessionId": session } });
        let snapshot = post(&server, "/agents/chef/getSnapshot", &look)["result"].take();

        assert_eq!(said(&snapshot, "user").len(), turn + 1, "{snapshot}");
        if turn == 0 && said(&snapshot, "tool").is_empty() {
            return Err(Whim(format!("it called no tool: {snapshot}")));
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
    // The model samples at random: now and then it babbles until its context is full, which its server then refuses.
    let mut whims = Vec::new();
    for attempt in 1..=6 {
        match talk(folder.path(), &model, &format!("supper-{attempt}")) {
            Ok(()) => return,
            Err(Whim(whim)) => whims.push(whim),
        }
    }
    panic!("the model never played along: {whims:#?}");
}
