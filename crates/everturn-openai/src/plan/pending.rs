//! Calls that wait for an answer, and the input that answers them.

use everturn_agent::{AgentInput, Snapshot};
use everturn_ai::{Answers, History, Message};
use everturn_server::{CallAnswers, ServedAgent, WaitingCall, messages_of, turn_name, waiting_message};
use serde_json::{Value, json};

use crate::client_transcript::TranscriptItem;
use crate::fault::Fault;
use crate::items::{Item, ItemKind, TurnInfo, items_of};

/// Returns the calls that wait at the end of a conversation, whose last turn has this name. `respond_only`
/// names the tools that only accept a response.
pub(crate) fn pending(messages: &History, name: &str, respond_only: &[String]) -> Vec<WaitingCall> {
    let Some((place, last)) = waiting_message(messages) else {
        return Vec::new();
    };
    let info = TurnInfo {
        respond_only: respond_only.to_vec(),
        ..TurnInfo::default()
    };
    let waiting = |item: &Item| matches!(item.kind, ItemKind::Question(_) | ItemKind::Approval(_));
    let items = items_of(place, std::slice::from_ref(last), &info);
    let mut calls = WaitingCall::of_message(
        last,
        |tool| respond_only.iter().any(|name| name == tool),
        |_| String::new(),
    );
    for (call, item) in calls.iter_mut().zip(items.iter().filter(|item| waiting(item))) {
        call.id = item.key.id("call", name);
    }
    calls
}

/// Creates the input of a turn that continues `base`.
pub(crate) fn input_of(
    new: Vec<TranscriptItem>,
    base: Option<&Snapshot>,
    agent: &ServedAgent,
) -> Result<AgentInput, Fault> {
    let pending = base.map(|base| pending(messages_of(base), &turn_name(base), &agent.respond_only()));
    let pending = pending.unwrap_or_default();
    let mut users = Vec::new();
    let mut answers = Vec::new();
    for item in new {
        match item {
            TranscriptItem::User { content, .. } => users.push(Message::user(content)),
            TranscriptItem::Output { call, output } => answers.push((call, Answer::Output(output))),
            TranscriptItem::Approval {
                call,
                approve,
                reason,
            } => answers.push((call, Answer::Approval(approve, reason))),
            _ => {}
        }
    }
    if answers.is_empty() {
        if let Some(open) = pending.first() {
            return Err(unanswered(open));
        }
        let message = users.pop().ok_or_else(|| Fault::missing("input"))?;
        return Ok(AgentInput {
            earlier: users,
            ..AgentInput::from(message)
        });
    }
    if !users.is_empty() {
        return Err(Fault::wrong_value(
            "input",
            "Answers to calls and new messages cannot be sent together: send the answers first.",
        ));
    }
    Ok(AgentInput::answers(answered(&pending, answers)?))
}

/// An answer to a call.
enum Answer {
    Output(Value),
    Approval(bool, Option<String>),
}

fn answered(pending: &[WaitingCall], answers: Vec<(String, Answer)>) -> Result<Answers, Fault> {
    let mut answered = CallAnswers::to(pending);
    for (call, answer) in answers {
        let (open, part) = answered.find(&call).ok_or_else(|| {
            Fault::wrong_value(
                "input",
                format!("No call with the id '{call}' waits for an answer."),
            )
        })?;
        *part = open.answered(match answer {
            Answer::Output(output) => output,
            Answer::Approval(..) if !open.is_approval() => {
                return Err(Fault::wrong_value(
                    "input",
                    format!("The call '{call}' asks for an output and not for an approval."),
                ));
            }
            Answer::Approval(true, _) => json!({ "approved": true }),
            Answer::Approval(false, reason) => json!({ "approved": false, "reason": reason }),
        });
    }
    answered.finish().map_err(|open| unanswered(open[0]))
}

fn unanswered(open: &WaitingCall) -> Fault {
    let message = format!("No tool output found for function call {}.", open.id);
    Fault::invalid("failed_precondition", "input", message)
}
