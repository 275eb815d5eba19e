//! The choice of the model.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use everturn::prelude::{Value, json};

use crate::program::{Server, has_curl, playground, post};

/// A server that lists one model, and gives the same answer in every protocol.
fn provider() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read(&mut stream);
            let answer = answer(request.split(' ').nth(1).unwrap_or_default());
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all((head + &answer).as_bytes()).unwrap();
        }
    });
    url
}

/// The whole request is read: closing the connection earlier would discard the response.
fn read(stream: &mut TcpStream) -> String {
    let (mut request, mut piece) = (String::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).unwrap();
        request.push_str(&String::from_utf8_lossy(&piece[..read]));
        let Some((head, body)) = request.split_once("\r\n\r\n") else {
            continue;
        };
        let lengths = head
            .lines()
            .filter_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= lengths.max().unwrap_or(0) || read == 0 {
            return request;
        }
    }
}

fn answer(path: &str) -> String {
    let events = |events: &[Value]| {
        events
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .collect::<Vec<_>>()
            .concat()
    };
    let path = path.split('?').next().unwrap_or_default();
    match path {
        "/v1/models" => json!({ "data": [{ "id": "first" }], "has_more": false }).to_string(),
        "/v1beta/models" => {
            let methods = json!(["generateContent"]);
            json!({ "models": [{ "name": "models/first", "supportedGenerationMethods": methods }] })
                .to_string()
        }
        "/api/tags" => json!({ "models": [{ "name": "first" }] }).to_string(),
        "/api/show" => json!({ "capabilities": ["completion"] }).to_string(),
        "/v1/chat/completions" => {
            events(&[json!({ "choices": [{ "delta": { "content": "Leeks!" }, "finish_reason": "stop" }] })])
        }
        "/v1/responses" => {
            let item = json!({ "type": "message", "id": "m", "content": [{ "type": "output_text", "text": "Leeks!" }] });
            events(&[
                json!({ "type": "response.completed", "response": { "status": "completed", "output": [item] } }),
            ])
        }
        "/v1/messages" => events(&[
            json!({ "type": "message_start", "message": { "usage": {} } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "Leeks!" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 1 } }),
            json!({ "type": "message_stop" }),
        ]),
        "/api/chat" => {
            json!({ "message": { "content": "Leeks!" }, "done": true, "done_reason": "stop" }).to_string()
        }
        _ if path.ends_with(":streamGenerateContent") => {
            let content = json!({ "role": "model", "parts": [{ "text": "Leeks!" }] });
            events(&[json!({ "candidates": [{ "content": content, "finishReason": "STOP" }] })])
        }
        _ => String::new(),
    }
}

fn start(options: &[&str], variables: &[(&str, &str)]) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = [&["--addr", "127.0.0.1:0"], options].concat();
    (Server::start_with(folder.path(), &options, variables), folder)
}

#[test]
fn every_provider_answers_for_the_agents() {
    if !has_curl() {
        return;
    }
    let url = provider();
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("openai", &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", &url)]),
        (
            "openai",
            &[("OPENAI_BASE_URL", &url), ("OPENAI_API", "responses")],
        ),
        (
            "anthropic",
            &[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", &url)],
        ),
        (
            "gemini",
            &[("GOOGLE_API_KEY", "k"), ("GOOGLE_GEMINI_BASE_URL", &url)],
        ),
        ("ollama", &[("OLLAMA_HOST", &url)]),
    ];
    for (provider, variables) in cases {
        let (server, _folder) = start(&[], variables);
        let line = format!("The model is {provider}/first.");
        assert!(server.greeting.contains(&line), "{}", server.greeting);

        for agent in ["chef", "banker"] {
            let message = json!({ "role": "user", "content": [{ "text": "Leeks?" }] });
            let answer = post(
                &server,
                &format!("/agents/{agent}"),
                &json!({ "data": { "message": message } }),
            );
            assert_eq!(
                answer["result"]["message"]["content"][0]["text"], "Leeks!",
                "{provider}: {answer}"
            );
        }
    }
}

#[test]
fn the_first_that_is_there_is_taken_unless_another_is_named() {
    let url = provider();
    let both = [
        ("ANTHROPIC_API_KEY", "k"),
        ("OPENAI_API_KEY", "k"),
        ("OLLAMA_HOST", url.as_str()),
    ];
    let named = [both.as_slice(), &[("EVERTURN_MODEL", "anthropic/claude-test")]].concat();

    let (first, _folder) = start(&[], &both);
    let (by_variable, _folder) = start(&[], &named);
    let (by_option, _folder) = start(&["--model", "ollama/qwen3"], &named);
    let (offline, _folder) = start(&["--model", "offline"], &named);
    let (without, _folder) = start(&[], &[("OPENAI_API_KEY", " ")]);

    let others = "--model anthropic/NAME or --model ollama/NAME would do as well.";
    assert!(
        first.greeting.contains("The model is openai/gpt-5-mini; "),
        "{}",
        first.greeting
    );
    assert!(first.greeting.contains(others), "{}", first.greeting);
    assert!(
        by_variable
            .greeting
            .contains("The model is anthropic/claude-test;"),
        "{}",
        by_variable.greeting
    );
    assert!(
        by_option.greeting.contains("The model is ollama/qwen3;"),
        "{}",
        by_option.greeting
    );
    assert!(
        offline.greeting.contains("The model is a handful of rules;"),
        "{}",
        offline.greeting
    );
    assert!(
        without.greeting.contains("The model is a handful of rules."),
        "{}",
        without.greeting
    );
}

#[test]
fn an_unusable_model_ends_with_advice() {
    let run = |model: &str| {
        let output = playground()
            .args(["--model", model])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{model}");
        String::from_utf8(output.stderr).unwrap()
    };

    assert!(run("openai/gpt-5-mini").contains("OPENAI_API_KEY"));
    assert!(run("anthropic/claude").contains("ANTHROPIC_API_KEY"));
    assert!(run("gemini/gemini").contains("GEMINI_API_KEY"));
    assert!(run("gpt-5-mini").contains("openai/NAME"));
    assert!(run("acme/x").contains("'acme/x' is no model"));
}
