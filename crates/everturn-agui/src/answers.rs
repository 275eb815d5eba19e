//! Calls that wait for an answer, and the answers from clients.

use std::collections::HashMap;

use everturn_ai::{Answers, Declined, History, Message, Part};
use everturn_core::{Error, Result};
use everturn_server::{CallAnswers, MessagePosition, ServedAgent, WaitingCall, WaitingKind, waiting_message};
use serde_json::{Value, json};

use crate::encoder::Call;
use crate::input::{ClientContent, ClientMessage, Resume, ResumeStatus, invalid};

/// Returns the calls that wait at the end of a conversation, whose last message was added by the turn `name`.
pub(crate) fn pending(messages: &History, name: &str, agent: &ServedAgent) -> Vec<WaitingCall> {
    let Some((place, last)) = waiting_message(messages) else {
        return Vec::new();
    };
    pending_of(last, agent, |number| {
        MessagePosition::new(place, number).id("call", name)
    })
}

/// Returns the waiting calls of a message; `id` maps their number to their id.
pub(crate) fn pending_of(
    message: &Message,
    agent: &ServedAgent,
    id: impl Fn(usize) -> String,
) -> Vec<WaitingCall> {
    WaitingCall::of_message(message, |tool| agent.answer_schema(tool).is_some(), id)
}

/// Returns whether a call is of the application's own tool.
pub(crate) fn is_of_application(open: &WaitingCall) -> bool {
    open.kind == WaitingKind::OfClient
}

/// Returns waiting calls by name and reference, with their ids.
pub(crate) fn calls_of(open: &[WaitingCall]) -> Vec<(Call, String)> {
    let request = |open: &WaitingCall| open.part.as_tool_request().cloned();
    open.iter()
        .filter_map(|open| {
            let request = request(open)?;
            Some(((request.name, request.reference), open.id.clone()))
        })
        .collect()
}

/// Returns the interrupt of a waiting call for the end of a run.
pub(crate) fn interrupt(open: &WaitingCall, agent: &ServedAgent) -> Value {
    let request = open.part.as_tool_request();
    let mut call = json!({
        "tool": request.map(|request| &request.name),
        "input": request.and_then(|request| request.input.as_ref()),
    });
    if let Some(payload) = open.part.interrupt().filter(|payload| !payload.is_boolean()) {
        call["payload"] = payload.clone();
    }
    let mut interrupt = json!({
        "id": open.id,
        "reason": "tool_call",
        "toolCallId": open.id,
        "metadata": { "everturn": call },
    });
    let schema = if open.kind == WaitingKind::Approval {
        Some(json!({
            "type": "object",
            "properties": { "approved": { "type": "boolean" }, "reason": { "type": "string" } },
            "required": ["approved"],
        }))
    } else {
        let schema = request.and_then(|request| agent.answer_schema(&request.name));
        schema.filter(|schema| schema.is_object()).cloned()
    };
    if let Some(schema) = schema.filter(|_| !is_of_application(open)) {
        interrupt["responseSchema"] = schema;
    }
    interrupt
}

/// Returns the part that answers a call.
fn answered(open: &WaitingCall, payload: Value) -> Result<Option<Part>> {
    let edits = payload.get("editedArgs").is_some_and(|edited| !edited.is_null());
    if open.is_approval() && edits {
        return Err(invalid(format!(
            "an approval of call '{}' is for the arguments it was asked for: 'editedArgs' is not taken",
            open.id
        )));
    }
    Ok(open.answered(payload))
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
    pending: &[WaitingCall],
    resume: &[Resume],
    new: &[ClientMessage],
) -> Result<ReceivedAnswers> {
    let mut answers = CallAnswers::to(pending);
    let mut given = ReceivedAnswers::default();
    for message in new {
        let ClientContent::Tool { call, content } = &message.content else {
            continue;
        };
        let Some((open, answer)) = answers.find(call) else {
            given.has_stray = true;
            continue;
        };
        *answer = answered(open, read(content))?;
        given.shown.insert(call.clone(), content.clone());
    }
    for resumed in resume {
        let Some((open, answer)) = answers.find(&resumed.interrupt_id) else {
            given.has_stray = true;
            continue;
        };
        *answer = match resumed.status {
            ResumeStatus::Cancelled => open.part.respond(Declined::Cancelled.output(), None),
            ResumeStatus::Resolved => answered(open, resumed.payload.clone().unwrap_or_default())?,
        };
    }
    if !answers.is_empty() {
        given.answers = Some(answers.finish().map_err(|open| uncovered(&open))?);
    }
    Ok(given)
}

/// Returns the error of a run that leaves calls without an answer.
pub(crate) fn uncovered(open: &[&WaitingCall]) -> Error {
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
