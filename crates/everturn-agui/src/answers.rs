//! Calls that wait for an answer, and the answers from clients.

use std::collections::HashMap;

use everturn_ai::history::awaiting;
use everturn_ai::{Answers, Declined, History, Message, Part};
use everturn_core::{Error, Result};
use everturn_server::{MessagePosition, ServedAgent};
use serde_json::{Value, json};

use crate::encoder::Call;
use crate::input::{ClientContent, ClientMessage, Resume, ResumeStatus, invalid};

/// A call that waits for an answer.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// The call's id in the protocol.
    pub(crate) id: String,
    pub(crate) part: Part,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// A call of the application's own tool.
    Application,
    /// A tool without an implementation, which only accepts a response, with the response's schema.
    Question(Value),
    /// A call that requires approval.
    Approval,
}

/// Returns the calls that wait at the end of a conversation, whose last message was added by the turn `name`.
pub(crate) fn pending(messages: &History, name: &str, agent: &ServedAgent) -> Vec<Pending> {
    let asking = awaiting(messages).and_then(|place| Some((place, messages.get(place)?)));
    let Some((place, last)) = asking else {
        return Vec::new();
    };
    pending_of(last, agent, |number| {
        MessagePosition::new(place, number).id("call", name)
    })
}

/// Returns the index of the call with an id.
fn position_of(pending: &[Pending], id: &str) -> Option<usize> {
    pending.iter().position(|open| open.id == id)
}

/// Returns the waiting calls of a message; `id` maps their number to their id.
pub(crate) fn pending_of(
    message: &Message,
    agent: &ServedAgent,
    id: impl Fn(usize) -> String,
) -> Vec<Pending> {
    let requests = message.tool_request_parts().enumerate();
    requests
        .filter(|(_, part)| part.interrupt().is_some())
        .map(|(number, part)| {
            let name = part.as_tool_request().map(|request| request.name.as_str());
            let kind = match name.and_then(|name| agent.answer_schema(name)) {
                _ if part.is_call_of_client() => Kind::Application,
                Some(schema) => Kind::Question(schema.clone()),
                None => Kind::Approval,
            };
            Pending {
                id: id(number),
                part: part.clone(),
                kind,
            }
        })
        .collect()
}

impl Pending {
    pub(crate) fn is_of_application(&self) -> bool {
        matches!(self.kind, Kind::Application)
    }

    /// Returns the call by its name and reference.
    pub(crate) fn call(&self) -> Option<Call> {
        let request = self.part.as_tool_request()?;
        Some((request.name.clone(), request.reference.clone()))
    }

    /// Returns the interrupt for the end of a run.
    pub(crate) fn interrupt(&self) -> Value {
        let request = self.part.as_tool_request();
        let mut call = json!({
            "tool": request.map(|request| &request.name),
            "input": request.and_then(|request| request.input.as_ref()),
        });
        if let Some(payload) = self.part.interrupt().filter(|payload| !payload.is_boolean()) {
            call["payload"] = payload.clone();
        }
        let schema = match &self.kind {
            Kind::Question(schema) if schema.is_object() => Some(schema.clone()),
            Kind::Approval => Some(json!({
                "type": "object",
                "properties": { "approved": { "type": "boolean" }, "reason": { "type": "string" } },
                "required": ["approved"],
            })),
            _ => None,
        };
        let mut interrupt = json!({
            "id": self.id,
            "reason": "tool_call",
            "toolCallId": self.id,
            "metadata": { "everturn": call },
        });
        if let Some(schema) = schema {
            interrupt["responseSchema"] = schema;
        }
        interrupt
    }

    fn answered(&self, payload: Value) -> Result<Option<Part>> {
        let is_approval = matches!(self.kind, Kind::Approval);
        if is_approval && payload.get("editedArgs").is_some_and(|edited| !edited.is_null()) {
            return Err(invalid(format!(
                "an approval of call '{}' is for the arguments it was asked for: 'editedArgs' is not taken",
                self.id
            )));
        }
        let approved = payload
            .get("approved")
            .and_then(Value::as_bool)
            .filter(|_| is_approval);
        Ok(match approved {
            Some(true) => self.part.restart(Some(payload), None),
            Some(false) => {
                let reason = payload.get("reason").and_then(Value::as_str).map(str::to_owned);
                self.part.respond(Declined::Denied { reason }.output(), None)
            }
            None => self.part.respond(payload, None),
        })
    }
}

/// The answers in a request.
#[derive(Debug, Default)]
pub(crate) struct ReceivedAnswers {
    pub(crate) answers: Option<Answers>,
    /// The results in the client's messages, by the ids of their calls.
    pub(crate) shown: HashMap<String, String>,
    /// Whether an answer names no waiting call.
    pub(crate) has_stray: bool,
}

/// Reads the answers to pending calls: entries of `resume`, and results of calls among the client's new
/// messages.
///
/// # Errors
/// `FAILED_PRECONDITION` that names the calls without an answer, if any call has one.
pub(crate) fn given(
    pending: &[Pending],
    resume: &[Resume],
    new: &[ClientMessage],
) -> Result<ReceivedAnswers> {
    let mut parts: Vec<Option<Part>> = vec![None; pending.len()];
    let mut given = ReceivedAnswers::default();
    for message in new {
        let ClientContent::Tool { call, content } = &message.content else {
            continue;
        };
        let Some(index) = position_of(pending, call) else {
            given.has_stray = true;
            continue;
        };
        parts[index] = pending[index].answered(read(content))?;
        given.shown.insert(call.clone(), content.clone());
    }
    for answer in resume {
        let Some(index) = position_of(pending, &answer.interrupt_id) else {
            given.has_stray = true;
            continue;
        };
        let open = &pending[index];
        parts[index] = match answer.status {
            ResumeStatus::Cancelled => open.part.respond(Declined::Cancelled.output(), None),
            ResumeStatus::Resolved => open.answered(answer.payload.clone().unwrap_or_default())?,
        };
    }
    if parts.iter().all(Option::is_none) {
        return Ok(given);
    }
    let open = pending.iter().zip(&parts).filter(|(_, part)| part.is_none());
    let open: Vec<&Pending> = open.map(|(open, _)| open).collect();
    if !open.is_empty() {
        return Err(uncovered(&open));
    }
    given.answers = Some(parts.into_iter().flatten().collect());
    Ok(given)
}

/// Returns the error of a run that leaves calls without an answer.
pub(crate) fn uncovered(open: &[&Pending]) -> Error {
    let ids: Vec<String> = open.iter().map(|open| format!("'{}'", open.id)).collect();
    Error::failed_precondition(format!(
        "the thread waits for answers to {}: send them in 'resume'",
        ids.join(", ")
    ))
    .with_public()
}

/// Reads a result: as JSON where it is JSON, else as the text.
pub(crate) fn read(content: &str) -> Value {
    serde_json::from_str(content).unwrap_or_else(|_| content.into())
}
