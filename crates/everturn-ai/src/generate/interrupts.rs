//! Resolving an interrupt: every tool request of the interrupted message gets its answer.
//!
//! All answers are checked before anything runs: each tool decides whether this caller may answer, and in
//! which form (`tool/answering.rs`). The call and its interrupt are taken from the conversation, never from
//! the client.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_core::{Context, Emitter, Error, Result, SpanRecorder};
use serde_json::{Value, json};

use super::call::Call;
use super::chunk_index::ChunkIndex;
use super::partial::round_end;
use super::recorded::{asked_again, reconciled, unknown_effect};
use super::round::send_answers;
use super::tool_calls::{self, answer};
use crate::effect::without_journal;
use crate::metadata::is_outcome_unknown;
use crate::{
    Answers, Approval, Declined, GenerateRound, GivenAnswer, Message, ModelResponse, MultipartToolResponse,
    Part, Questions, Reconciliation, Role, ToolCall, ToolContext, ToolOutcome, ToolRequest, metadata, reason,
};

/// The result of resolving an interrupted message.
pub(super) enum Resolved {
    /// Every request has its answer: the round that follows.
    Next(Box<GenerateRound>),
    /// A request waits for more answers: the response with the message, and the round that it ends.
    Open(Box<ModelResponse>, Box<GenerateRound>),
}

/// One tool request of the interrupted message, and the way in which it is resolved.
struct Resolution {
    way: Way,
    /// The question about the request with the answers to it, if one is to be recorded.
    approval: Option<Approval>,
}

enum Way {
    /// This part answers the request.
    Answered(Part),
    /// This tool request is run in place of the interrupted one.
    Restarted(Part),
    /// More people must give the same answer.
    Waiting,
}

/// The answer to a request of the interrupted message.
enum Outcome {
    Answered(Part),
    /// The request waits for more people.
    Waiting,
    /// The request asks another question, with this data.
    Asks(Value),
    /// The request asks its question again, because the call was already made.
    AsksAgain(Value),
}

/// A tool call by its name and reference.
type CallId<'a> = (&'a str, Option<&'a str>);

/// The given answers by the call they answer; the first of several for one call counts. Indexed, because a
/// caller decides how many answers there are.
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
        // Reversed, so that the first one stays.
        Self {
            responses: respond.iter().rev().filter_map(response).collect(),
            restarts: restart.iter().rev().filter_map(request).collect(),
        }
    }
}

impl Call {
    /// Resolves the interrupted message.
    pub(super) async fn resolve(
        self: &Arc<Self>,
        mut round: GenerateRound,
        given: Answers,
    ) -> Result<Resolved> {
        let (place, interrupted) = interrupted_message(&round)?;
        // Checked before anything runs: an answer that is not allowed must not reach a tool.
        let resolutions = self
            .resolutions(&interrupted, &given, &round.context)
            .map_err(refused)?;
        let index = ChunkIndex::starting_at(round.message_index);
        let mut approvals: Vec<_> = resolutions.iter().map(|one| one.approval.clone()).collect();
        record(&interrupted, &approvals, &round.context);
        let outcomes = self.outcomes(&round, &interrupted, resolutions, &index).await?;
        if !outcomes
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Answered(_)))
        {
            let asking = self.still_asking(&interrupted, outcomes, &mut approvals, &round.context);
            let messages = &mut round.request.messages;
            messages.splice(place..messages.len(), []);
            let response = tool_calls::interrupted(ModelResponse::new(asking));
            return Ok(Resolved::Open(Box::new(response), Box::new(round)));
        }
        let answers = outcomes.into_iter().filter_map(|outcome| match outcome {
            Outcome::Answered(part) => Some(part),
            _ => None,
        });
        let note = given.metadata.map_or(Value::Bool(true), Value::Object);
        let answers = Message::tool(answers.collect::<Vec<_>>()).with_metadata_entry(metadata::RESUMED, note);

        let messages = &mut round.request.messages;
        let waited = messages.slice(place + 1..messages.len());
        let waited = waited
            .iter()
            .map(|message| message.clone().without_metadata_entry(metadata::WAITING));
        // The request gets a copy; the caller's history keeps the message with its interrupt.
        let resolved = [resolved_message(&interrupted, &approvals), answers.clone()];
        messages.splice(place..messages.len(), resolved.into_iter().chain(waited));
        self.progress.reach(&round);
        round_end(&round.context, &round.request.messages).await?;
        send_answers(&round.emitter, &answers, &index).await?;
        round.message_index = index.following();
        Ok(Resolved::Next(Box::new(round)))
    }

    /// Returns the interrupted message with the answers so far. Resolved calls keep their output until the
    /// others are resolved, too.
    fn still_asking(
        &self,
        interrupted: &Message,
        outcomes: Vec<Outcome>,
        approvals: &mut [Option<Approval>],
        context: &Context,
    ) -> Message {
        let mut resolutions = outcomes.into_iter().zip(approvals);
        let annotated = |part: &Part| {
            let Some((outcome, approval)) = part.as_tool_request().and_then(|_| resolutions.next()) else {
                return part.clone();
            };
            let (data, already_made) = match outcome {
                Outcome::Answered(answer) => return kept(part, &answer).with_approval(approval.as_ref()),
                Outcome::Waiting => return part.clone().with_approval(approval.as_ref()),
                Outcome::Asks(data) => (data, false),
                Outcome::AsksAgain(data) => (data, true),
            };
            let outcome = ToolOutcome::Interrupted(data);
            let question = self.question(part, &outcome, context);
            let question = question.map(|question| Approval {
                already_made,
                ..question
            });
            let part = part.clone().without_metadata_entry(metadata::APPROVAL);
            tool_calls::waiting(part, outcome).with_approval(question.as_ref())
        };
        interrupted
            .clone()
            .with_content(interrupted.content().iter().map(annotated).collect::<Vec<_>>())
    }

    fn resolutions(
        &self,
        interrupted: &Message,
        given: &Answers,
        context: &Context,
    ) -> Result<Vec<Resolution>> {
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
        // Genkit's clients in other languages restart a call without an answer. The data of all answers is
        // used in its place.
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
            .map(|part| self.resolution(part, &given, context))
            .collect()
    }

    fn resolution(&self, part: &Part, given: &GivenAnswers<'_>, context: &Context) -> Result<Resolution> {
        let unresolved = || Error::internal("a part of a tool request is no tool request");
        let request = part.as_tool_request().ok_or_else(unresolved)?;
        // A finished call is not run again, even if the client requests it.
        if let Some(answer) = part.pending_answer() {
            return Ok(Resolution {
                way: Way::Answered(answer),
                approval: None,
            });
        }
        let call = (request.name.as_str(), request.reference.as_deref());
        if let Some(&response) = given.responses.get(&call) {
            let output = response
                .as_tool_response()
                .and_then(|response| response.output.as_ref());
            let output = output.unwrap_or(&Value::Null);
            let approval = match self.tools.get(&request.name) {
                Ok(tool) => recorded(
                    tool.answered(part, GivenAnswer::Response(output), context)?,
                    part,
                    context,
                ),
                // A client need not bring its tool again to answer the call.
                Err(_) if part.is_call_of_client() => None,
                Err(error) => return Err(error),
            };
            return Ok(Resolution::of(approval, Way::Answered(response.clone())));
        }
        let again = *given.restarts.get(&call).ok_or_else(|| unanswered(request))?;
        let question = part.approval();
        if let (Some(asked), Some(answered)) = (&question, again.approval())
            && asked.id != answered.id
        {
            return Err(another_question(request));
        }
        let mut approval = None;
        // A removed tool has no rules about answers; running it fails.
        if let (Ok(tool), Some(call)) = (self.tools.get(&request.name), again.as_tool_request()) {
            let decision = again.metadata_entry(metadata::RESUMED).unwrap_or(&Value::Null);
            let answered = tool.answered(part, GivenAnswer::Restart { call, decision }, context)?;
            approval = recorded(answered, part, context);
        }
        // The client must not be able to forge an answered interrupt, or an approval.
        let again = again
            .clone()
            .without_metadata_entry(metadata::RESOLVED_INTERRUPT)
            .without_metadata_entry(metadata::APPROVAL)
            .with_approval(approval.as_ref());
        // The interrupt's data is taken from the conversation and not from the client, so that the tool can
        // trust it.
        let again = match part.interrupt() {
            Some(asked) => again.with_metadata_entry(metadata::RESOLVED_INTERRUPT, asked.clone()),
            None => again,
        };
        Ok(Resolution::of(approval, Way::Restarted(again)))
    }

    /// Returns the outcomes in the order of the requests; restarted tools run concurrently.
    async fn outcomes(
        self: &Arc<Self>,
        round: &GenerateRound,
        interrupted: &Message,
        resolutions: Vec<Resolution>,
        index: &ChunkIndex,
    ) -> Result<Vec<Outcome>> {
        let restarts = resolutions.iter().filter_map(|resolution| match &resolution.way {
            Way::Restarted(part) => Some(part.clone()),
            Way::Answered(_) | Way::Waiting => None,
        });
        let mut outcomes = self
            // No reply requested these calls, so the journal identifies them by the restart alone.
            .run_requests(round, restarts.collect(), None, index)
            .await?
            .into_iter();
        let mut answered = Vec::with_capacity(resolutions.len());
        for (resolution, asked) in resolutions.into_iter().zip(interrupted.tool_request_parts()) {
            let outcome = match resolution.way {
                Way::Answered(part) if asked.is_outcome_unknown() => {
                    Some(Outcome::Answered(self.confirmed(round, asked, part).await))
                }
                Way::Answered(part) => Some(Outcome::Answered(part)),
                Way::Waiting => Some(Outcome::Waiting),
                Way::Restarted(part) => match outcomes.next() {
                    Some(ToolOutcome::Finished(response)) => answer(&part, response).map(Outcome::Answered),
                    Some(ToolOutcome::Interrupted(data)) => own_question(data),
                    None => None,
                },
            };
            answered.push(outcome.ok_or_else(|| interrupted_again(interrupted))?);
        }
        Ok(answered)
    }

    /// Returns the answer to a call whose outcome was unknown. If a person reports that it happened and the
    /// tool's reconcile function confirms it, the reconcile function makes the changes of the session that
    /// the call would have made.
    async fn confirmed(&self, round: &GenerateRound, asked: &Part, given: Part) -> Part {
        let declines = |output: &Value| Declined::of(output).is_some();
        let output = given
            .as_tool_response()
            .and_then(|response| response.output.as_ref());
        let name = asked.as_tool_request().map(|request| request.name.as_str());
        let tool = name.and_then(|name| self.tools.get(name).ok());
        let effect = asked.interrupt().and_then(unknown_effect);
        let (Some(tool), Some(effect), false) = (tool, effect, output.is_some_and(declines)) else {
            return given;
        };
        let call = ToolCall {
            part: asked.clone(),
            tool: tool.clone(),
            emitter: Emitter::silent(),
            context: without_journal(round.context.clone()),
            registry: self.registry.clone(),
        };
        let context = ToolContext::for_request(call.context.clone(), asked.clone(), Emitter::silent());
        match reconciled(&call, context.with_effect(effect)).await {
            Ok(Reconciliation::Happened(ToolOutcome::Finished(response))) => {
                answer(asked, response).unwrap_or(given)
            }
            Ok(_) => given,
            Err(error) => {
                tracing::warn!(%error, "a reported outcome could not be confirmed and is used as it is");
                given
            }
        }
    }
}

impl Resolution {
    fn of(approval: Option<Approval>, way: Way) -> Self {
        let is_answered = approval.as_ref().is_none_or(Approval::is_answered);
        Self {
            way: if is_answered { way } else { Way::Waiting },
            approval,
        }
    }
}

/// Returns the approval if it is to be recorded. A generation outside an agent writes only Genkit's metadata
/// unless a rule needs more, and the program of a client that answers for its own tool approves nothing.
fn recorded(approval: Approval, asked: &Part, context: &Context) -> Option<Approval> {
    let was_asked = asked.metadata_entry(metadata::APPROVAL).is_some();
    let is_kept = was_asked || Questions::in_context(context).is_some() || !approval.is_answered();
    (is_kept && !asked.is_call_of_client()).then_some(approval)
}

/// Returns the loop's own question about a restarted call; `None` if the tool itself asks again.
fn own_question(data: Value) -> Option<Outcome> {
    if let Some(question) = asked_again(&data) {
        return Some(Outcome::AsksAgain(question.clone()));
    }
    is_outcome_unknown(&data).then_some(Outcome::Asks(data))
}

/// Returns a resolved tool request that waits for the others of its message.
fn kept(request: &Part, answer: &Part) -> Part {
    let response = answer.as_tool_response().cloned().unwrap_or_default();
    let outcome = ToolOutcome::Finished(MultipartToolResponse {
        output: response.output,
        content: response.content,
        metadata: None,
    });
    tool_calls::waiting(resolved(request), outcome)
}

/// Records the answers of this resumption on the span.
fn record(interrupted: &Message, approvals: &[Option<Approval>], context: &Context) {
    let requests = interrupted.tool_requests().zip(approvals);
    let given: Vec<Value> = requests
        .filter_map(|(request, approval)| {
            let answer = approval.as_ref()?.answers.last()?;
            Some(json!({
                "tool": request.name,
                "ref": request.reference,
                "call": approval.as_ref()?.call,
                "by": answer.by,
                "at": answer.at,
                "form": answer.form,
                "edited": answer.is_edited(),
            }))
        })
        .collect();
    if !given.is_empty() {
        SpanRecorder::of(context).attribute("everturn.approvals", Value::Array(given).to_string());
    }
}

/// Returns the interrupted message and its index: the last one, except for messages of the user that wait
/// with it.
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

/// Returns the interrupted message in the form that the history keeps: no request waits any more, and the
/// interrupts' data and answers are recorded.
fn resolved_message(interrupted: &Message, approvals: &[Option<Approval>]) -> Message {
    let mut approvals = approvals.iter();
    let resolve = |part: &Part| {
        if part.as_tool_request().is_none() {
            return part.clone();
        }
        resolved(part).with_approval(approvals.next().and_then(Option::as_ref))
    };
    interrupted
        .clone()
        .with_content(interrupted.content().iter().map(resolve).collect::<Vec<_>>())
}

/// Returns a tool request that no longer waits.
fn resolved(part: &Part) -> Part {
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
}

/// Marks the error of an answer that was rejected before anything ran.
fn refused(error: Error) -> Error {
    let has_own = [reason::QUESTION_EXPIRED, reason::UNRESOLVED_TOOL_REQUEST];
    if has_own.into_iter().any(|reason| error.is(reason)) {
        return error;
    }
    error.with_reason(reason::ANSWER_REFUSED)
}

fn wrong_directive(list: &str, wanted: &str) -> Error {
    Error::invalid_argument(format!("'resume.{list}' must hold {wanted} only")).with_public()
}

fn unanswered(request: &ToolRequest) -> Error {
    Error::invalid_argument(format!(
        "tool request '{request}' was not resolved by 'resume': every interrupted request needs a response or a restart"
    ))
    .with_reason(reason::UNRESOLVED_TOOL_REQUEST)
    .with_public()
}

fn another_question(request: &ToolRequest) -> Error {
    Error::failed_precondition(format!(
        "the answer to '{request}' is for another question about it: read the conversation again and answer the open one"
    ))
    .with_public()
}

fn interrupted_again(message: &Message) -> Error {
    Error::failed_precondition("a restarted tool interrupted again; answer it instead")
        .with_details(json!({ "message": message }))
        .with_public()
}
