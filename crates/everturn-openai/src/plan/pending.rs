//! Calls that wait for an answer, and the input that answers them.

use everturn_agent::{AgentInput, Snapshot};
use everturn_ai::history::awaiting;
use everturn_ai::{Answers, Declined, History, Message, Part};
use everturn_server::turn_name;
use serde_json::{Value, json};

use crate::agents::Agent;
use crate::client_transcript::TranscriptItem;
use crate::fault::Fault;
use crate::items::{ItemKind, TurnInfo, items_of};

/// A call that waits for an answer, with its id in the protocol.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: String,
    pub(crate) part: Part,
    pub(crate) is_approval: bool,
}

/// Returns the calls that wait at the end of a conversation, whose last turn has this name.
pub(crate) fn pending(messages: &History, name: &str, agent: &Agent) -> Vec<Pending> {
    let asking = awaiting(messages).and_then(|place| Some((place, messages.get(place)?)));
    let Some((place, last)) = asking else {
        return Vec::new();
    };
    let info = TurnInfo {
        respond_only: agent.respond_only(),
        ..TurnInfo::default()
    };
    let items = items_of(place, std::slice::from_ref(last), &info);
    let mut parts = last.interrupts();
    items
        .iter()
        .filter_map(|item| match item.kind {
            ItemKind::Question(_) => Some((item.key, false)),
            ItemKind::Approval(_) => Some((item.key, true)),
            _ => None,
        })
        .filter_map(|(key, is_approval)| {
            Some(Pending {
                id: key.id("call", name),
                part: parts.next()?.clone(),
                is_approval,
            })
        })
        .collect()
}

/// Creates the input of a turn that continues `base`.
pub(crate) fn input_of(
    new: Vec<TranscriptItem>,
    base: Option<&Snapshot>,
    agent: &Agent,
) -> Result<AgentInput, Fault> {
    let name = base.map(turn_name).unwrap_or_default();
    let history = base
        .and_then(|base| base.state.as_ref())
        .map(|state| &state.messages);
    let pending = history
        .map(|messages| pending(messages, &name, agent))
        .unwrap_or_default();
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
            return Err(Fault::invalid(
                "failed_precondition",
                "input",
                format!("No tool output found for function call {}.", open.id),
            ));
        }
        let message = users.pop().ok_or_else(|| Fault::missing("input"))?;
        return Ok(AgentInput {
            earlier: users,
            ..AgentInput::from(message)
        });
    }
    if !users.is_empty() {
        return Err(Fault::invalid(
            "invalid_value",
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

fn answered(pending: &[Pending], answers: Vec<(String, Answer)>) -> Result<Answers, Fault> {
    let mut parts: Vec<Option<Part>> = vec![None; pending.len()];
    for (call, answer) in answers {
        let index = pending.iter().position(|open| open.id == call).ok_or_else(|| {
            Fault::invalid(
                "invalid_value",
                "input",
                format!("No call with the id '{call}' waits for an answer."),
            )
        })?;
        parts[index] = answer_to(&pending[index], answer)?;
    }
    let unanswered = parts
        .iter()
        .position(Option::is_none)
        .map(|index| &pending[index]);
    if let Some(open) = unanswered {
        return Err(Fault::invalid(
            "failed_precondition",
            "input",
            format!("No tool output found for function call {}.", open.id),
        ));
    }
    Ok(parts.into_iter().flatten().collect())
}

fn answer_to(open: &Pending, answer: Answer) -> Result<Option<Part>, Fault> {
    let approval = match &answer {
        Answer::Approval(..) if !open.is_approval => {
            return Err(Fault::invalid(
                "invalid_value",
                "input",
                format!(
                    "The call '{}' asks for an output and not for an approval.",
                    open.id
                ),
            ));
        }
        Answer::Approval(approve, reason) => Some((*approve, reason.clone())),
        Answer::Output(output) if open.is_approval => output["approved"].as_bool().map(|approve| {
            let reason = output["reason"].as_str().map(str::to_owned);
            (approve, reason)
        }),
        Answer::Output(_) => None,
    };
    Ok(match (approval, answer) {
        (Some((true, _)), Answer::Output(output)) => open.part.restart(Some(output), None),
        (Some((true, _)), _) => open.part.restart(Some(json!({ "approved": true })), None),
        (Some((false, reason)), _) => open.part.respond(Declined::Denied { reason }.output(), None),
        (None, Answer::Output(output)) => open.part.respond(output, None),
        (None, Answer::Approval(..)) => None,
    })
}
