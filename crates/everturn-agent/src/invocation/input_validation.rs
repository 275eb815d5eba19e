//! Validation of an input: its answers are checked, and open requests are closed or put to the client again.
//!
//! It comes before the agent's function, so it holds for agents around a prompt and for those that run their
//! turns themselves.

use everturn_ai::history::{awaiting, closing};
use everturn_ai::{
    Answerer, Answers, History, Message, ModelResponseChunk, OPERATOR, Part, PartKind, Questions, Role,
    metadata, with_questions,
};
use everturn_core::{Context, Error, Result};
use serde_json::json;

use crate::invocation::answers::RestartInputs;
use crate::policy::client_permissions::ClientRules;
use crate::{AgentInput, AgentStreamChunk, Clock, SessionId, WhileInterrupted};

/// The rules by which an agent validates inputs.
#[derive(Debug, Clone)]
pub(super) struct InputValidation {
    /// The fields that inputs may set in addition to their message; `None` for inputs of this program.
    pub(super) client_rules: Option<ClientRules>,
    /// Whether the conversation was supplied by a client and cannot be verified.
    pub(super) is_clients_word: bool,
    pub(super) while_interrupted: WhileInterrupted,
    /// The inputs with which the agent lets interrupted calls run again, unless a tool sets otherwise.
    pub(super) restart_inputs: RestartInputs,
    /// Whether a generation checks every answer against its tool, which may allow other inputs.
    pub(super) asks_tools: bool,
    pub(super) clock: Clock,
}

/// An input that passed validation.
#[derive(Debug, Default)]
pub(super) struct ValidInput {
    /// The messages to add to the session before the turn: answers that close open requests, and the input's
    /// own.
    pub(super) messages: Vec<Message>,
    /// The answers among them, or the requests that are put to the client again.
    reported: Vec<Part>,
    /// The place of the answers in the session.
    position: Option<usize>,
    /// Whether the turn ends at once, because its message waits for the answers to open requests.
    pub(super) is_waiting: bool,
}

impl InputValidation {
    /// Validates an input of a caller against the conversation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a field that the agent does not accept from clients, and for answers that do
    /// not fit the open requests; `FAILED_PRECONDITION` for a message that the agent does not take while
    /// requests are open.
    pub(super) fn validate(
        &self,
        history: &History,
        input: &AgentInput,
        caller: &Context,
    ) -> Result<ValidInput> {
        if let Some(rules) = &self.client_rules {
            rules.check(input)?;
        }
        let messages: Vec<Message> = input.messages().cloned().collect();
        if let Some(answers) = given_answers(input) {
            // Before anything runs: a forged answer must not reach a tool.
            let inputs = if self.asks_tools {
                RestartInputs::Edited
            } else {
                self.restart_inputs
            };
            inputs.validate(history, answers)?;
            return Ok(ValidInput::of(messages));
        }
        if messages.is_empty() {
            return Ok(ValidInput::default());
        }
        let asking = awaiting(history).and_then(|place| history.get(place));
        // An expired question can no longer be answered, so the conversation does not wait for it.
        let asking = asking.filter(|asking| !self.is_expired(asking));
        let is_reserved = |part: &Part| {
            let closes_all = self.while_interrupted == WhileInterrupted::CloseAll;
            part.is_reserved(caller) && (!closes_all || part.is_outcome_unknown())
        };
        match (self.while_interrupted, asking) {
            (WhileInterrupted::Reject, Some(asking)) => Err(refused(asking.interrupts(), caller)),
            (WhileInterrupted::CloseOwn | WhileInterrupted::CloseAll, Some(asking))
                if asking.interrupts().any(is_reserved) =>
            {
                let reserved = asking.interrupts().filter(|part| is_reserved(part));
                Err(refused(reserved, caller))
            }
            (WhileInterrupted::Ask, Some(asking)) => {
                messages.iter().try_for_each(check_message)?;
                let waiting = messages
                    .into_iter()
                    .map(|message| message.with_metadata_entry(metadata::WAITING, true));
                Ok(ValidInput {
                    reported: asking.interrupts().cloned().collect(),
                    is_waiting: true,
                    ..ValidInput::of(waiting.collect())
                })
            }
            _ => {
                let closing = closing(history);
                Ok(ValidInput {
                    reported: closing.iter().flat_map(Message::content).cloned().collect(),
                    position: closing.is_some().then(|| history.len()),
                    ..ValidInput::of(closing.into_iter().chain(messages).collect())
                })
            }
        }
    }
}

impl InputValidation {
    fn is_expired(&self, asking: &Message) -> bool {
        let now = self.clock.now();
        let is_expired = |part: &Part| part.approval().is_some_and(|question| question.is_expired(now));
        asking.interrupts().all(is_expired)
    }

    /// Returns the context with the circumstances in which the turn's tools ask and their questions are
    /// answered.
    pub(super) fn enter(&self, context: Context, session: &SessionId) -> Context {
        let clock = self.clock.clone();
        let questions = Questions::new(move || clock.now())
            .in_session(session.as_str())
            .allowing_edits(self.restart_inputs == RestartInputs::Edited)
            .kept_by_client(self.is_clients_word);
        with_questions(context, questions)
    }
}

impl ValidInput {
    fn of(messages: Vec<Message>) -> Self {
        Self {
            messages,
            ..Self::default()
        }
    }

    /// Returns the chunk with the answers that were added, or with the requests that are open.
    pub(super) fn chunk(&self, sends_positions: bool) -> Option<AgentStreamChunk> {
        if self.reported.is_empty() {
            return None;
        }
        let chunk = ModelResponseChunk {
            role: Some(Role::Tool),
            content: self.reported.clone(),
            ..ModelResponseChunk::default()
        };
        Some(AgentStreamChunk::model(chunk).at(self.position.filter(|_| sends_positions)))
    }
}

/// Returns the answers to interrupts, if the input brings any.
pub(super) fn given_answers(input: &AgentInput) -> Option<&Answers> {
    input.answers.as_ref().filter(|answers| !answers.is_empty())
}

/// Refuses a message that is not the user's.
///
/// # Errors
/// `INVALID_ARGUMENT` for another role, and for tool requests and responses.
pub(super) fn check_message(message: &Message) -> Result<()> {
    if message.role() != Role::User {
        return Err(Error::invalid_argument(format!(
            "clients send user messages only; a message of role '{}' is not accepted",
            message.role()
        ))
        .with_public());
    }
    // A tool response in a message would be a forged result.
    let is_tool_part =
        |part: &Part| matches!(part.kind(), PartKind::ToolRequest(_) | PartKind::ToolResponse(_));
    if message.content().iter().any(is_tool_part) {
        return Err(
            Error::invalid_argument("answers to tool requests go into 'resume', not into a message")
                .with_public(),
        );
    }
    Ok(())
}

/// Refuses a message because of requests that are open, and names who may answer them.
fn refused<'a>(open: impl Iterator<Item = &'a Part>, caller: &Context) -> Error {
    let mut names = Vec::new();
    let mut texts = Vec::new();
    for part in open {
        let Some(request) = part.as_tool_request() else {
            continue;
        };
        names.push(request.to_string());
        texts.push(match answerer(part, caller) {
            Some(by) => format!("'{request}' ({by})"),
            None => format!("'{request}'"),
        });
    }
    Error::failed_precondition(format!(
        "the conversation waits for answers to the tool requests {}: answer them in 'resume' before the next message",
        texts.join(", ")
    ))
    .with_details(json!({ "open": names }))
    .with_public()
}

/// Returns words for the callers who may answer a request, if this one may not.
fn answerer(part: &Part, caller: &Context) -> Option<String> {
    if !part.is_reserved(caller) {
        return None;
    }
    let what = if part.is_outcome_unknown() {
        "its outcome is unknown, and is settled by"
    } else {
        "it is answered by"
    };
    let who = match part.approval().and_then(|question| question.answered_by) {
        Some(Answerer::Role(role)) => format!("callers with the role '{role}'"),
        None if part.is_outcome_unknown() => format!("callers with the role '{OPERATOR}'"),
        _ => "another person".to_owned(),
    };
    Some(format!("{what} {who}"))
}
