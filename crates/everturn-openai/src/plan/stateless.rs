//! Turns on conversations that only the client keeps.

use everturn_agent::{AgentInput, ClientTool, SessionState};
use everturn_ai::{Message, Part, Role, ToolRequest, ToolResponse};
use everturn_server::{TurnPlan, with_waiting_calls};

use super::rejected;
use crate::client_transcript::TranscriptItem;
use crate::fault::Fault;

/// Plans a turn on the conversation in a request. Nothing is stored.
pub(crate) fn plan_stateless(
    transcript: Vec<TranscriptItem>,
    instructions: Vec<String>,
    tools: Vec<ClientTool>,
) -> Result<TurnPlan, Fault> {
    let mut messages: Vec<Message> = Vec::new();
    let mut open: Vec<Part> = Vec::new();
    let mut answers: Vec<Part> = Vec::new();
    for item in transcript {
        // A group of answers ends at any other item.
        if !answers.is_empty() && !matches!(item, TranscriptItem::Output { .. }) {
            messages.push(Message::tool(std::mem::take(&mut answers)));
            open.clear();
        }
        match item {
            TranscriptItem::User { content, .. } => messages.push(Message::user(content)),
            TranscriptItem::Assistant { text, .. } => messages.push(Message::model(text)),
            TranscriptItem::Call { id, name, arguments } => {
                let is_own = tools.iter().any(|tool| tool.name == name);
                if !is_own {
                    return Err(Fault::unsupported(
                        "tools",
                        format!(
                            "'{name}' is not a function of this request: a client cannot supply calls of the agent's own tools."
                        ),
                    ));
                }
                let part = Part::tool_request(ToolRequest::new(name, arguments).with_reference(id));
                open.push(part.clone());
                match messages.pop() {
                    Some(last) if last.role() == Role::Model => messages.push(last.with_part(part)),
                    other => {
                        messages.extend(other);
                        messages.push(Message::model(vec![part]));
                    }
                }
            }
            TranscriptItem::Output { call, output } => {
                let request = open
                    .iter()
                    .filter_map(Part::as_tool_request)
                    .find(|request| request.reference.as_deref() == Some(&call));
                let Some(request) = request else {
                    return Err(Fault::wrong_value(
                        "input",
                        format!("No call with the id '{call}' waits for an answer."),
                    ));
                };
                answers.push(Part::tool_response(ToolResponse::to(request, output)));
            }
            // Reasoning is ignored.
            TranscriptItem::Known { what, .. } if what == "reasoning" => {}
            other @ (TranscriptItem::Known { .. } | TranscriptItem::Approval { .. }) => {
                return Err(rejected(&other));
            }
            TranscriptItem::Instructions(_) => {}
        }
    }
    let input = if answers.is_empty() {
        let since = messages
            .iter()
            .rev()
            .take_while(|message| message.role() == Role::User)
            .count();
        let mut users = messages.split_off(messages.len() - since);
        let message = users.pop().ok_or_else(|| {
            Fault::wrong_value(
                "input",
                "The last message must be the user's, or the output of a tool.",
            )
        })?;
        AgentInput {
            earlier: users,
            ..AgentInput::from(message)
        }
    } else {
        let unanswered = open.len() > answers.len();
        if unanswered {
            return Err(Fault::invalid(
                "failed_precondition",
                "input",
                "Every call of the last message needs its output.",
            ));
        }
        if let Some(last) = messages.pop() {
            messages.push(with_waiting_calls(&last, |_| true));
        }
        AgentInput::answers(answers)
    };
    let state = SessionState {
        messages: messages.into_iter().collect(),
        ..SessionState::default()
    };
    let input = AgentInput {
        tools,
        instructions,
        ..input
    };
    Ok(TurnPlan::of_client(state, input))
}
