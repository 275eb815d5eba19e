//! Settling an interrupt: every tool request of the interrupted message gets its answer.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_core::{Context, Error, Result};
use serde_json::{Value, json};

use super::call::Call;
use super::chunk_index::ChunkIndex;
use super::observer::round_end;
use super::round::send_answers;
use super::tool_calls::answer;
use crate::middleware::GenerateRound;
use crate::{Answers, GivenAnswer, Message, Part, Role, ToolOutcome, ToolRequest, metadata, reason};

/// The way in which one tool request of the interrupted message is settled.
enum Settlement {
    /// This part answers the request.
    Answered(Part),
    /// This tool request is run in place of the interrupted one.
    Restarted(Part),
}

/// A tool call by its name and reference.
type CallId<'a> = (&'a str, Option<&'a str>);

/// The given answers by the call they answer; of several for one call the first counts. A caller decides how many answers
/// there are, so they are not searched for each request.
struct GivenAnswers<'a> {
    responses: HashMap<CallId<'a>, &'a Part>,
    restarts: HashMap<CallId<'a>, &'a Part>,
}

impl<'a> GivenAnswers<'a> {
    fn new(respond: &'a [Part], restart: &'a [Part]) -> Self {
        let response = |part: &'a Part| {
            let response = part.as_tool_response()?;
            Some(((response.name.as_str(), response.reference.as_deref()), part))
        };
        let request = |part: &'a Part| {
            let request = part.as_tool_request()?;
            Some(((request.name.as_str(), request.reference.as_deref()), part))
        };
        // From the end, so that the first stays.
        Self {
            responses: respond.iter().rev().filter_map(response).collect(),
            restarts: restart.iter().rev().filter_map(request).collect(),
        }
    }
}

impl Call {
    /// Settles the interrupted message and returns the round that follows.
    pub(super) async fn settle(
        self: &Arc<Self>,
        mut round: GenerateRound,
        given: Answers,
    ) -> Result<GenerateRound> {
        let (place, interrupted) = interrupted_message(&round)?;
        // Before anything runs: an answer that is not allowed must not reach a tool.
        let settlements = self.settlements(&interrupted, &given, &round.context)?;
        let index = ChunkIndex::starting_at(round.message_index);
        let answers = self.answers(&round, &interrupted, settlements, &index).await?;
        let note = given.metadata.map_or(Value::Bool(true), Value::Object);
        let answers = Message::tool(answers).with_metadata_entry(metadata::RESUMED, note);

        let messages = &mut round.request.messages;
        let waited = messages.slice(place + 1..messages.len());
        let waited = waited
            .iter()
            .map(|message| message.clone().without_metadata_entry(metadata::WAITING));
        // A copy in the request: the caller's history keeps the message with its interrupt.
        let settled = [settled(&interrupted), answers.clone()];
        messages.splice(place..messages.len(), settled.into_iter().chain(waited));
        round_end(&round.context, &round.request.messages).await?;
        send_answers(&round.emitter, &answers, &index).await?;
        round.message_index = index.following();
        Ok(round)
    }

    fn settlements(
        &self,
        interrupted: &Message,
        given: &Answers,
        context: &Context,
    ) -> Result<Vec<Settlement>> {
        let Answers {
            respond,
            restart,
            metadata: data,
        } = given;
        if respond.iter().any(|part| part.as_tool_response().is_none()) {
            return Err(wrong_directive("respond", "tool responses"));
        }
        if restart.iter().any(|part| part.as_tool_request().is_none()) {
            return Err(wrong_directive("restart", "tool requests"));
        }
        // The clients of other languages restart a call without an answer. The data of all answers stands in for it.
        let plain = data.clone().map_or(Value::Bool(true), Value::Object);
        let restart: Vec<Part> = restart
            .iter()
            .map(|part| match part.metadata_entry(metadata::RESUMED) {
                Some(_) => part.clone(),
                None => part.clone().with_metadata_entry(metadata::RESUMED, plain.clone()),
            })
            .collect();
        let given = GivenAnswers::new(respond, &restart);
        interrupted
            .tool_request_parts()
            .map(|part| self.settlement(part, &given, context))
            .collect()
    }

    fn settlement(&self, part: &Part, given: &GivenAnswers<'_>, context: &Context) -> Result<Settlement> {
        let unresolved = || Error::internal("a part of a tool request is no tool request");
        let request = part.as_tool_request().ok_or_else(unresolved)?;
        // A call that had finished is not run again, even if the client asks for it.
        if let Some(answer) = part.pending_answer() {
            return Ok(Settlement::Answered(answer));
        }
        let call = (request.name.as_str(), request.reference.as_deref());
        if let Some(&response) = given.responses.get(&call) {
            let output = response
                .as_tool_response()
                .and_then(|response| response.output.as_ref());
            let output = output.unwrap_or(&Value::Null);
            match self.tools.get(&request.name) {
                Ok(tool) => tool.check_answer(part, GivenAnswer::Response(output), context)?,
                // A client need not bring its tool again to answer the call.
                Err(_) if part.is_call_of_client() => {}
                Err(error) => return Err(error),
            }
            return Ok(Settlement::Answered(response.clone()));
        }
        let again = *given.restarts.get(&call).ok_or_else(|| unanswered(request))?;
        // A tool that is gone is no tool to ask; running it fails.
        if let (Ok(tool), Some(call)) = (self.tools.get(&request.name), again.as_tool_request()) {
            let decision = again.metadata_entry(metadata::RESUMED).unwrap_or(&Value::Null);
            tool.check_answer(part, GivenAnswer::Restart { call, decision }, context)?;
        }
        // The client must not be able to invent an answered interrupt.
        let again = again.clone().without_metadata_entry(metadata::RESOLVED_INTERRUPT);
        // The interrupt's data is taken from the conversation and not from the client, so that the tool may trust it.
        Ok(Settlement::Restarted(match part.interrupt() {
            Some(asked) => again.with_metadata_entry(metadata::RESOLVED_INTERRUPT, asked.clone()),
            None => again,
        }))
    }

    /// Returns the answers in the order of the requests; restarted tools run at the same time.
    async fn answers(
        self: &Arc<Self>,
        round: &GenerateRound,
        interrupted: &Message,
        settlements: Vec<Settlement>,
        index: &ChunkIndex,
    ) -> Result<Vec<Part>> {
        let restarts = settlements.iter().filter_map(|settlement| match settlement {
            Settlement::Restarted(part) => Some(part.clone()),
            Settlement::Answered(_) => None,
        });
        let mut outcomes = self
            // No reply asked for these calls: the journal identifies them by the restart alone.
            .run_requests(round, restarts.collect(), None, index)
            .await?
            .into_iter();
        settlements
            .into_iter()
            .map(|settlement| match settlement {
                Settlement::Answered(part) => Ok(part),
                Settlement::Restarted(part) => match outcomes.next() {
                    Some(ToolOutcome::Finished(response)) => {
                        answer(&part, response).ok_or_else(|| interrupted_again(interrupted))
                    }
                    _ => Err(interrupted_again(interrupted)),
                },
            })
            .collect()
    }
}

/// Returns the interrupted message and its index: the last one, except for messages of the user that wait with it.
fn interrupted_message(round: &GenerateRound) -> Result<(usize, Message)> {
    let messages = &round.request.messages;
    let waits = |message: &Message| {
        message.role() == Role::User && message.metadata_entry(metadata::WAITING).is_some()
    };
    let last = messages.rposition(|message| !waits(message));
    let is_interrupted =
        |message: &&Message| message.role() == Role::Model && message.tool_requests().next().is_some();
    let found = last.and_then(|last| Some((last, messages.get(last).filter(is_interrupted)?.clone())));
    found.ok_or_else(|| {
        let message = "there is no interrupt to answer: the last message is not a model's with at least one tool request";
        Error::failed_precondition(message).with_public()
    })
}

/// Returns the interrupted message as the history keeps it: no request waits any more, and the interrupts' data is
/// recorded.
fn settled(interrupted: &Message) -> Message {
    let settled = |part: &Part| {
        if part.as_tool_request().is_none() {
            return part.clone();
        }
        let was = part.metadata_entry(metadata::INTERRUPT).cloned();
        let part = part
            .clone()
            .without_metadata_entry(metadata::PENDING_OUTPUT)
            .without_metadata_entry(metadata::PENDING_CONTENT)
            .without_metadata_entry(metadata::INTERRUPT);
        match was {
            Some(interrupt) => part.with_metadata_entry(metadata::RESOLVED_INTERRUPT, interrupt),
            None => part,
        }
    };
    interrupted
        .clone()
        .with_content(interrupted.content().iter().map(settled).collect::<Vec<_>>())
}

fn wrong_directive(list: &str, wanted: &str) -> Error {
    Error::invalid_argument(format!("'resume.{list}' must hold {wanted} only")).with_public()
}

fn unanswered(request: &ToolRequest) -> Error {
    Error::invalid_argument(format!(
        "tool request '{request}' was not settled by 'resume': every interrupted request needs a response or a restart"
    ))
    .with_reason(reason::UNRESOLVED_TOOL_REQUEST)
    .with_public()
}

fn interrupted_again(message: &Message) -> Error {
    Error::failed_precondition("a restarted tool interrupted again; answer it instead")
        .with_details(json!({ "message": message }))
        .with_public()
}
