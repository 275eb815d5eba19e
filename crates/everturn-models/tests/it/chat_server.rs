//! A server of Chat Completions, as strict as the strictest: what any of them refuses, this refuses with 400.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::chat::{delta, end, stream};
use crate::chat_rules::{Given, check};
use crate::server::{Reply, Request, Server};

/// An assistant message with this text, after some reasoning.
pub(crate) fn said(reasoning: &str, text: &str) -> Value {
    json!({ "role": "assistant", "reasoning_content": reasoning, "content": text })
}

/// An assistant message that calls tools, after some reasoning. The first call is signed.
pub(crate) fn called(reasoning: &str, calls: &[(&str, &str, Value)]) -> Value {
    let call = |(number, (id, name, arguments)): (usize, &(&str, &str, Value))| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        let mut call = json!({ "id": id, "type": "function", "function": function });
        if number == 0 {
            call["extra_content"] = json!({ "google": { "thought_signature": format!("{id}+/=") } });
        }
        call
    };
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    json!({ "role": "assistant", "reasoning_content": reasoning, "content": null, "tool_calls": calls })
}

/// The stream of an assistant message, its texts and arguments in pieces.
pub(crate) fn streamed(message: &Value) -> String {
    let mut choices = vec![delta(json!({ "role": "assistant", "content": null }))];
    for field in ["reasoning_content", "content"] {
        let text = message[field].as_str().unwrap_or_default();
        choices.extend(pieces(text).map(|piece| delta(json!({ field: piece }))));
    }
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    for (index, call) in calls.enumerate() {
        let mut opening = call.clone();
        opening["index"] = json!(index);
        opening["function"]["arguments"] = json!("");
        choices.push(delta(json!({ "tool_calls": [opening] })));
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        choices.extend(pieces(arguments).map(|piece| {
            delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }))
        }));
    }
    choices.push(end(if message["tool_calls"].is_null() {
        "stop"
    } else {
        "tool_calls"
    }));
    stream(&choices)
}

fn pieces(text: &str) -> impl Iterator<Item = String> {
    let letters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = letters.chunks(3).map(|piece| piece.iter().collect()).collect();
    pieces.into_iter()
}

/// The body of an error.
pub(crate) fn error(message: &str) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error", "param": null, "code": null } })
}

/// Starts a strict server that gives these answers, one per request that it accepts.
pub(crate) async fn start_strict(answers: impl IntoIterator<Item = Value>) -> Server {
    Server::start(strict(answers)).await
}

fn strict(answers: impl IntoIterator<Item = Value>) -> impl FnMut(&Request) -> Reply + Send + 'static {
    let mut answers: VecDeque<Value> = answers.into_iter().collect();
    let mut given = Given::default();
    move |request| {
        if let Err(refusal) = check(request, &given) {
            return Reply::json(&error(&refusal)).status(400);
        }
        let Some(answer) = answers.pop_front() else {
            return Reply::json(&error("the script has no more answers")).status(418);
        };
        given.add(&answer);
        Reply::events(streamed(&answer))
    }
}
