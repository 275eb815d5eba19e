//! Runs of agents without a store: the client keeps the conversation, and its messages become the state.

use std::collections::{HashMap, VecDeque};

use everturn_agent::{AgentInput, SessionState};
use everturn_ai::{Message, Part, Role, ToolRequest, ToolResponse, metadata};
use everturn_core::Result;
use everturn_server::{ServedAgent, TurnPlan, WaitingCall, with_waiting_calls};
use serde_json::json;

use crate::answers::{ReceivedAnswers, calls_of, given, is_of_application, pending_of, read, uncovered};
use crate::input::{ClientContent, ClientMessage, RunInput, invalid};
use crate::plan::{Plan, noted};

/// Plans the turn of a run on a conversation that the client keeps.
///
/// # Errors
/// `INVALID_ARGUMENT` or `FAILED_PRECONDITION` for a run without input, or without the answers that the
/// thread waits for.
pub(crate) fn plan(agent: &ServedAgent, input: &RunInput, sent: &[ClientMessage]) -> Result<Plan> {
    let since = sent
        .iter()
        .rposition(|message| !matches!(message.content, ClientContent::User(_) | ClientContent::Other))
        .map_or(0, |index| index + 1);
    // Results at the end answer the calls of the message before them.
    let is_result = |message: &ClientMessage| matches!(message.content, ClientContent::Tool { .. });
    let results = sent[..since]
        .iter()
        .rev()
        .take_while(|message| is_result(message))
        .count();
    let (earlier, new) = sent.split_at(since - results);
    let mut messages = history(earlier);
    let calls = references(messages.last());
    let offered = if agent.accepts_tools() {
        input.tools()
    } else {
        Vec::new()
    };
    let is_offered = |part: &Part| {
        let name = part.as_tool_request().map(|request| request.name.as_str());
        offered.iter().any(|tool| Some(tool.name.as_str()) == name)
    };
    if let Some(last) = messages.pop() {
        messages.push(with_waiting_calls(&last, is_offered));
    }
    let id = |number: usize| calls.get(number).cloned().unwrap_or_default();
    let mut open = match messages.last() {
        Some(last) if last.role() == Role::Model => pending_of(last, agent, id),
        _ => Vec::new(),
    };
    let (results, users) = new.split_at(results);
    let ReceivedAnswers {
        answers,
        shown: answered,
        has_stray,
    } = given(&open, input.resume(), results)?;
    let users = users.iter().filter_map(|message| match &message.content {
        ClientContent::User(parts) => Some(noted(
            Message::user(parts.clone()),
            Some(&message.id),
            &input.run_id,
        )),
        _ => None,
    });
    let mut users: Vec<Message> = users.collect();
    let turn = match (answers, users.pop()) {
        (Some(answers), None) => AgentInput::answers(answers),
        (None, Some(message)) => AgentInput {
            earlier: users,
            ..AgentInput::from(message)
        },
        // The client keeps the conversation: the user's messages follow the results in it.
        (Some(answers), Some(message)) => {
            close(&mut messages, answers.respond);
            open.clear();
            AgentInput {
                earlier: users,
                ..AgentInput::from(message)
            }
        }
        (None, None) if has_stray => {
            return Err(invalid("no call of the thread waits for the answer in the run"));
        }
        (None, None) => return Err(invalid("the run contains no user message")),
    };
    let questions: Vec<&WaitingCall> = open.iter().filter(|open| !is_of_application(open)).collect();
    if turn.answers.is_none() && !questions.is_empty() {
        return Err(uncovered(&questions));
    }
    let state = SessionState {
        session_id: Some(input.session()).filter(|_| !messages.is_empty()),
        messages: messages.into_iter().collect(),
        custom: input.state().cloned().map(std::sync::Arc::new),
        ..SessionState::default()
    };
    Ok(Plan {
        turn: TurnPlan::of_client(state, turn),
        waiting: calls_of(&open),
        answered,
        first: Vec::new(),
    })
}

/// Adds the results of the last message's calls to the conversation.
fn close(messages: &mut Vec<Message>, results: Vec<Part>) {
    if let Some(last) = messages.pop() {
        let parts = last
            .content()
            .iter()
            .map(|part| part.clone().without_metadata_entry(metadata::INTERRUPT));
        let parts: Vec<Part> = parts.collect();
        messages.push(last.with_content(parts));
        messages.push(Message::tool(results));
    }
}

/// Returns the client's conversation as messages. Results without a call are dropped.
fn history(sent: &[ClientMessage]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    // Calls without a result, oldest first, by their ids.
    let mut requests: HashMap<&str, VecDeque<ToolRequest>> = HashMap::new();
    for message in sent {
        match &message.content {
            ClientContent::User(parts) => messages.push(Message::user(parts.clone())),
            ClientContent::Assistant { text, calls } => {
                let text = Some(text).filter(|text| !text.is_empty()).map(Part::text);
                let made = calls.iter().map(|call| {
                    let input = match call.arguments.trim() {
                        "" => json!({}),
                        arguments => read(arguments),
                    };
                    ToolRequest::new(&call.name, input).with_reference(&call.id)
                });
                let made: Vec<ToolRequest> = made.collect();
                let parts = text
                    .into_iter()
                    .chain(made.iter().cloned().map(Part::tool_request));
                let parts: Vec<Part> = parts.collect();
                if !parts.is_empty() {
                    messages.push(Message::model(parts));
                    for (call, request) in calls.iter().zip(made) {
                        requests.entry(&call.id).or_default().push_back(request);
                    }
                }
            }
            ClientContent::Tool { call, content } => {
                let made = requests.get_mut(call.as_str());
                let Some(request) = made.and_then(VecDeque::pop_front) else {
                    continue;
                };
                let part = Part::tool_response(ToolResponse::to(&request, read(content)));
                match messages.pop() {
                    Some(last) if last.role() == Role::Tool => messages.push(last.with_part(part)),
                    other => {
                        messages.extend(other);
                        messages.push(Message::tool(vec![part]));
                    }
                }
            }
            ClientContent::Reasoning | ClientContent::Other => {}
        }
    }
    messages
}

fn references(message: Option<&Message>) -> Vec<String> {
    let requests = message.into_iter().flat_map(Message::tool_requests);
    requests.filter_map(|request| request.reference.clone()).collect()
}
