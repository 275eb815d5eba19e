//! A server that plays Anthropic, as strict as the real one: what that refuses, this refuses with 400.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::anthropic_rules::{Given, check};
use crate::server::{Reply, Request, Server, named_sse};

/// An answer of the model: its blocks, whole, and why it stops.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    blocks: Vec<Value>,
    stop: Value,
}

impl Answer {
    /// An answer of these blocks that stops for the reason that fits them.
    pub(crate) fn of(blocks: impl Into<Vec<Value>>) -> Self {
        let blocks = blocks.into();
        let calls_tool = blocks.iter().any(|block| block["type"] == "tool_use");
        let reason = if calls_tool { "tool_use" } else { "end_turn" };
        Self {
            blocks,
            stop: json!({ "stop_reason": reason, "stop_sequence": null }),
        }
    }

    /// The same answer, stopped for another reason.
    pub(crate) fn stopping(self, reason: &str) -> Self {
        let stop = json!({ "stop_reason": reason, "stop_sequence": null });
        Self { stop, ..self }
    }

    /// The events that stream the answer.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut events = vec![start()];
        for (index, block) in self.blocks.iter().enumerate() {
            events.extend(block_events(index, block));
        }
        events.push(json!({
            "type": "message_delta", "delta": self.stop, "usage": { "output_tokens": 9 },
        }));
        events.push(json!({ "type": "message_stop" }));
        events
    }
}

/// The first event of a stream.
pub(crate) fn start() -> Value {
    json!({ "type": "message_start", "message": {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {
            "input_tokens": 5, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 1,
        },
    }})
}

/// The events that stream a block: its text and arguments in pieces, a signature at the end.
fn block_events(index: usize, block: &Value) -> Vec<Value> {
    let delta = |delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let mut opening = block.clone();
    let mut deltas = Vec::new();
    match block["type"].as_str().unwrap() {
        "text" => {
            opening = json!({ "type": "text", "text": "" });
            let pieces = pieces(block["text"].as_str().unwrap());
            deltas.extend(pieces.map(|piece| json!({ "type": "text_delta", "text": piece })));
            let citations = block["citations"].as_array().into_iter().flatten();
            deltas
                .extend(citations.map(|citation| json!({ "type": "citations_delta", "citation": citation })));
        }
        "thinking" => {
            opening = json!({ "type": "thinking", "thinking": "", "signature": "" });
            let pieces = pieces(block["thinking"].as_str().unwrap());
            deltas.extend(pieces.map(|piece| json!({ "type": "thinking_delta", "thinking": piece })));
            deltas.push(json!({ "type": "signature_delta", "signature": block["signature"] }));
        }
        "tool_use" | "server_tool_use" => {
            opening["input"] = json!({});
            deltas.push(json!({ "type": "input_json_delta", "partial_json": "" }));
            let input = block["input"].to_string();
            if input != "{}" {
                let pieces = pieces(&input).map(str::to_owned).collect::<Vec<_>>();
                let piece = |piece: String| json!({ "type": "input_json_delta", "partial_json": piece });
                deltas.extend(pieces.into_iter().map(piece));
            }
        }
        _ => {}
    }
    let mut events = vec![json!({ "type": "content_block_start", "index": index, "content_block": opening })];
    events.extend(deltas.into_iter().map(delta));
    events.push(json!({ "type": "content_block_stop", "index": index }));
    events
}

/// A text in pieces of three characters.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut ends: Vec<usize> = text.char_indices().map(|(at, _)| at).step_by(3).skip(1).collect();
    ends.push(text.len());
    ends.into_iter().scan(0, move |from, to| {
        let piece = &text[*from..to];
        *from = to;
        Some(piece)
    })
}

/// The body of an error.
pub(crate) fn error(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_body" })
}

/// Starts a strict server that gives these answers, one per request that it accepts.
pub(crate) async fn start_strict(answers: impl IntoIterator<Item = Answer>) -> Server {
    Server::start(strict(answers)).await
}

/// The script of a strict server.
pub(crate) fn strict(
    answers: impl IntoIterator<Item = Answer>,
) -> impl FnMut(&Request) -> Reply + Send + 'static {
    let mut answers: VecDeque<Answer> = answers.into_iter().collect();
    let mut given = Given::default();
    move |request| {
        if let Err(refusal) = check(request, &given) {
            return Reply::json(&error("invalid_request_error", &refusal)).status(400);
        }
        let Some(answer) = answers.pop_front() else {
            return Reply::json(&error("api_error", "the script has no more answers")).status(500);
        };
        given.add(&answer.blocks, answer.stop["stop_reason"] == "pause_turn");
        Reply::events(named_sse(&answer.events())).header("request-id", "req_01")
    }
}
