//! A server that plays Gemini, as strict as the real one: what that refuses, this refuses with 400.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::gemini_rules::{Given, check};
use crate::server::{Reply, Request, Server, sse};

/// An answer of the model: its parts, and why it stops.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    parts: Vec<Value>,
    finish: &'static str,
}

impl Answer {
    /// An answer of these parts.
    pub(crate) fn of(parts: impl Into<Vec<Value>>) -> Self {
        Self {
            parts: parts.into(),
            finish: "STOP",
        }
    }

    /// The same answer, stopped for another reason.
    pub(crate) fn stopping(self, finish: &'static str) -> Self {
        Self { finish, ..self }
    }

    /// The events that stream the answer: one for each part, then one without content.
    pub(crate) fn events(&self) -> Vec<Value> {
        let content = |part: &Value| {
            json!({
                "candidates": [{ "content": { "role": "model", "parts": [part] }, "index": 0 }],
                "usageMetadata": { "promptTokenCount": 10, "totalTokenCount": 11 },
                "modelVersion": "gemini-3-pro", "responseId": "r1",
            })
        };
        let mut events: Vec<Value> = self.parts.iter().map(content).collect();
        events.push(json!({
            "candidates": [{ "content": { "role": "model" }, "finishReason": self.finish, "index": 0 }],
            "usageMetadata": {
                "promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 22,
            },
            "modelVersion": "gemini-3-pro", "responseId": "r1",
        }));
        events
    }
}

/// The body of an error.
pub(crate) fn error(code: u16, status: &str, message: &str) -> Value {
    json!({ "error": { "code": code, "status": status, "message": message } })
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
            return Reply::json(&error(400, "INVALID_ARGUMENT", &refusal)).status(400);
        }
        let Some(answer) = answers.pop_front() else {
            return Reply::json(&error(500, "INTERNAL", "the script has no more answers")).status(500);
        };
        given.add(&answer.parts);
        Reply::events(sse(&answer.events()).replace('\n', "\r\n"))
    }
}
