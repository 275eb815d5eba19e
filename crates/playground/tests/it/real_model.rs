//! A conversation with a real model, in which the process is killed between the turns.
//!
//! `./test` serves the model, tiny and on this machine, and says where: `EVERTURN_TEST_MODEL`. It is not wise, so shape and
//! flow are asserted, never what it says.

use everturn::prelude::{Value, json};

use crate::program::{Server, has_curl, post};

fn said<'a>(snapshot: &'a Value, role: &str) -> Vec<&'a Value> {
    let messages = snapshot["state"]["messages"].as_array().unwrap();
    messages
        .iter()
        .filter(|message| message["role"] == role)
        .collect()
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
    let variables = [("OPENAI_BASE_URL", model.as_str())];
    let turns = [
        "Use a tool: put leeks into the pantry.",
        "Use a tool: put peas into the pantry.",
        "What is in the pantry?",
    ];

    for (turn, text) in turns.into_iter().enumerate() {
        let server = Server::start_with(folder.path(), &["--addr", "127.0.0.1:0"], &variables);
        assert!(
            server.greeting.contains("The model is openai/smollm2-135m"),
            "{}",
            server.greeting
        );

        let message = json!({ "role": "user", "content": [{ "text": text }] });
        let body = json!({ "data": { "message": message }, "init": { "sessionId": "supper" } });
        let answer = post(&server, "/agents/chef", &body);
        assert!(answer["result"]["message"].is_object(), "{answer}");
        let look = json!({ "data": { "sessionId": "supper" } });
        let snapshot = post(&server, "/agents/chef/getSnapshot", &look)["result"].take();

        assert_eq!(said(&snapshot, "user").len(), turn + 1, "{snapshot}");
        if turn == 0 {
            assert!(
                !said(&snapshot, "tool").is_empty(),
                "no tool was called: {snapshot}"
            );
        }
        server.signal("-KILL");
    }
}
