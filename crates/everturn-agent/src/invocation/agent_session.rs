//! The session as an agent's function sees it, and the loop that runs its turns.
//!
//! Every input is validated before its turn is handled: its answers are checked, and open requests are closed
//! or put to the client again. So it holds for agents around a prompt and for those that run their turns
//! themselves.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use everturn_ai::effect::without_journal;
use everturn_ai::history::{awaiting, closing};
use everturn_ai::prompt::PromptOverrides;
use everturn_ai::{
    Answerer, Answers, History, Message, ModelResponseChunk, OPERATOR, Part, PartKind, Questions, Role,
    UsageTotal, is_limit, metadata, with_questions, with_repeated_calls,
};
use everturn_core::offload::{is_heavy, offload};
use everturn_core::{Context, Error, HandlerError, HandlerResult, Result, Schema, SpanKind, in_span};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Definition;
use super::function::Signals;
use super::turn::TurnStart;
use super::usage_tracker::UsageTracker;
use crate::invocation::answers::RestartInputs;
use crate::invocation::failure_log::FailedWork;
use crate::invocation::turn_observer::EndedTurn;
use crate::policy::client_permissions::ClientRules;
use crate::policy::state_limit::StateLimit;
use crate::storage::session_state::decode_custom;
use crate::{
    AgentFinishReason, AgentInit, AgentInput, AgentResult, AgentStreamChunk, CustomState, Session, SessionId,
    SessionState, SnapshotId, Turn, TurnResult, WhileInterrupted,
};

/// The argument of an agent's function: the [`Session`], and the turns to run on it. Cloning is cheap.
#[derive(Clone)]
pub struct AgentSession<S = Value> {
    pub(super) session: Session<S>,
    pub(super) context: Context,
    pub(super) signals: Signals,
    pub(super) facts: Arc<InvocationFacts>,
}

/// Facts about an invocation that its function can read.
pub(crate) struct InvocationFacts {
    pub(super) definition: Arc<Definition>,
    /// Whether the inputs come from a client of the agent, and not from this program.
    pub(super) is_of_client: bool,
    /// Whether the conversation was supplied by a client and cannot be verified.
    pub(super) is_clients_word: bool,
    pub(super) init: AgentInit,
    /// The call's settings for the agent's prompt.
    pub(super) overrides: Option<Arc<PromptOverrides>>,
    /// The ids of the snapshots that the invocation has written, in order.
    pub(super) snapshots: Arc<Mutex<Vec<SnapshotId>>>,
    pub(super) limit: StateLimit,
    /// The usage of the invocation so far.
    pub(super) usage: Arc<UsageTracker>,
    /// The number of equal calls that a model may make in a turn.
    pub(super) repeated_calls: u32,
}

/// Decodes the custom state with which a client replaces the session's.
///
/// # Errors
/// `INVALID_ARGUMENT` if it does not fit.
async fn replaced_custom<S: CustomState>(custom: &Arc<Value>, schema: Option<Schema>) -> Result<S> {
    let value = Arc::clone(custom);
    let decode = move || {
        schema.map_or(Ok(()), |schema| schema.validate(&value))?;
        decode_custom(Some(&value))
    };
    let decoded = if is_heavy(custom) {
        offload(decode).await
    } else {
        decode()
    };
    decoded.map_err(|error| error.context("the custom state of the client").with_public())
}

/// The output that a turn's span records.
#[derive(Serialize)]
struct TurnOutput {
    state: SessionState,
}

impl<S: CustomState> AgentSession<S> {
    /// Runs `handler` on every input, one turn after the other, until the client has no more.
    ///
    /// Before a turn its answers to interrupts are [checked](crate::validate_answers), open requests are
    /// closed or repeated as the agent [chooses](crate::AgentBuilder::while_interrupted), and its message is
    /// added to the session. After it, if there is a store, the session is saved under [`Turn::snapshot_id`],
    /// and only then the client receives the end of the turn.
    ///
    /// # Errors
    /// The error of `handler`, or of the store if the turn could not be saved; `RESOURCE_EXHAUSTED` if the
    /// session's state is larger than
    /// [`AgentBuilder::max_state_bytes`](crate::AgentBuilder::max_state_bytes). The client then receives the
    /// failure. The function may return that error and fail, or call `run` again: inputs still waiting are
    /// then processed, on the session as it was before the failed turn, or as that turn
    /// [committed](Turn::committed) it. `CANCELLED` or `DEADLINE_EXCEEDED` if the invocation has ended.
    pub async fn run<F, Fut, R>(&self, mut handler: F) -> Result<()>
    where
        F: FnMut(Turn<S>) -> Fut + Send,
        Fut: Future<Output = HandlerResult<R>> + Send,
        R: Into<TurnResult>,
    {
        while let Some(start) = self.signals.next_turn().await? {
            self.run_turn(start, &mut handler).await?;
        }
        Ok(())
    }

    /// Waits for the next turn and leaves it to the caller to end it, for a function that writes the loop
    /// itself; `None` when the client has no more inputs.
    ///
    /// All else is as in [`AgentSession::run`].
    ///
    /// ```
    /// use everturn_agent::{AgentFinishReason, AgentSession, Artifact, custom_agent};
    /// use everturn_ai::Message;
    /// # use everturn_core::{Registry, Result};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// let cook = custom_agent(&registry, "cook", |session: AgentSession| async move {
    ///     while let Some(turn) = session.next_turn().await? {
    ///         turn.send_status("chopping").await?;
    ///         turn.send_chunk("Leek soup.").await?;
    ///         turn.stream_artifact(Artifact::text("preview", "a bowl")).await?;
    ///         turn.add_message(Message::model("Leek soup."));
    ///         turn.end(AgentFinishReason::Stop).await?;
    ///     }
    ///     Ok(session.result())
    /// })
    /// .define()?;
    ///
    /// assert_eq!(cook.run_text("Something with leeks?").await?.text(), "Leek soup.");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE_EXCEEDED` if the invocation has ended.
    pub async fn next_turn(&self) -> Result<Option<OwnedTurn<S>>> {
        while let Some(start) = self.signals.next_turn().await? {
            // A turn whose message waits for the answers to interrupts ends before it is handled.
            if let Some(turn) = OwnedTurn::begin(self.clone(), start).await? {
                return Ok(Some(turn));
            }
        }
        Ok(None)
    }

    pub(super) async fn run_turn<F, Fut, R>(&self, start: TurnStart, handler: &mut F) -> Result<()>
    where
        F: FnMut(Turn<S>) -> Fut + Send,
        Fut: Future<Output = HandlerResult<R>> + Send,
        R: Into<TurnResult>,
    {
        self.session.core().begin_turn();
        let facts = &*self.facts;
        let agent = &*facts.definition;
        let name = if agent.is_session_flow {
            format!("sessionFlow/turn/{}", start.place.turn_index)
        } else {
            format!("runTurn-{}", start.place.turn_index + 1)
        };
        let (input, journal, mut report) = (start.input, start.journal, start.report);
        let place = Arc::new(start.place);
        let context = self.context.clone().with_extension(Arc::clone(&place));
        let context = with_repeated_calls(context, facts.repeated_calls);
        let context = match &journal {
            Some(journal) => journal.enter_turn(context),
            // The caller's context may hold the journal of another agent's turn, which is not this turn's.
            None => without_journal(context),
        };
        let (session, signals) = (&self.session, &self.signals);
        let limit = &facts.limit;
        let context = facts.enter(context, session.session_id());
        let settle = &mut report;
        let (began, used_before) = (Instant::now(), facts.usage.own());
        let mut finish_reason = None;
        let finished = &mut finish_reason;
        let outcome = in_span(
            &name,
            SpanKind::FlowStep,
            context,
            |context, recorder| async move {
                recorder.input(&input);
                facts.usage.take_up_turn().await?;
                let received = facts.validate(&session.messages(), &input, &context)?;
                if let Some(custom) = &input.custom {
                    let custom = replaced_custom(custom, agent.custom_schema.clone()).await?;
                    session.core().replace_custom(custom);
                }
                // Boxed, so that the future of the handler's turn stays small.
                let chunk = received.chunk(signals.sends_positions()).map(Box::new);
                session.add_messages(received.messages);
                // Before anything is paid for, and again below before anything is kept.
                limit.check(&session.state())?;
                if let Some(chunk) = chunk {
                    signals.send(chunk).await?;
                }
                let outcome = if received.is_waiting {
                    Ok(AgentFinishReason::Interrupted.into())
                } else {
                    let context = match facts.client_rules() {
                        Some(rules) => {
                            let input = session.prompt_input();
                            rules.enter(context, &session.messages(), input.as_deref())
                        }
                        None => context,
                    };
                    let turn = Turn {
                        session: session.clone(),
                        input: *input,
                        place,
                        context,
                        signals: signals.clone(),
                    };
                    handler(turn).await.map(Into::into).map_err(Error::from)
                };
                let outcome: Result<TurnResult> =
                    outcome.and_then(|result| limit.check(&session.state()).map(|()| result));
                let reason = match outcome {
                    Ok(result) => result.finish_reason,
                    Err(error) => {
                        if let Some(journal) = journal {
                            // Boxed, so that turns that succeed are not as large as this.
                            Box::pin(journal.turn_failed(&error)).await;
                        }
                        return Err(error);
                    }
                };
                *finished = reason;
                if let Some(snapshot) = settle.settle(Ok(reason)).await? {
                    recorder.snapshot_id(snapshot.as_str());
                    if agent.is_session_flow {
                        recorder.session_flow(&agent.name, snapshot.as_str());
                    }
                }
                recorder.output(&TurnOutput {
                    state: session.state(),
                });
                Ok(())
            },
        )
        .await;
        self.turn_ended(&outcome, finish_reason, (began, used_before));
        if let Err(error) = &outcome {
            let failed = FailedWork {
                agent: &self.facts.definition.name,
                session: self.session.session_id(),
                context: &self.context,
            };
            failed.log("a turn", error);
            // The caller gets the handler's error, regardless of the outcome of the report.
            let _ = report.settle(Err(error.clone())).await;
        }
        outcome
    }

    /// Reports the end of a turn that began at a moment, with what the session had used then.
    fn turn_ended(
        &self,
        outcome: &Result<()>,
        finish_reason: Option<AgentFinishReason>,
        (began, used_before): (Instant, UsageTotal),
    ) {
        let ended = EndedTurn {
            agent: &self.facts.definition.name,
            finish_reason: match outcome {
                Ok(()) => finish_reason.unwrap_or(AgentFinishReason::Unknown),
                Err(error) if is_limit(error) || self.context.is_over() => AgentFinishReason::Aborted,
                Err(_) => AgentFinishReason::Failed,
            },
            failure: outcome.as_ref().err().map(Error::status),
            limit_reached: outcome.as_ref().is_err_and(is_limit),
            unknown_outcomes: match finish_reason {
                Some(AgentFinishReason::Interrupted) => unknown_outcomes(&self.session.messages()),
                _ => 0,
            },
            usage: self.facts.usage.own() - used_before,
            took: began.elapsed(),
        };
        for observer in self.facts.definition.turn_observers.all() {
            observer.turn_ended(&ended);
        }
        self.facts.usage.turn_is_over();
    }

    /// Returns the session's last message and all its artifacts, as most agents do at their end.
    pub fn result(&self) -> AgentResult {
        let state = self.session.state();
        let messages = &state.messages;
        // Messages that wait for the answers to interrupts come after the message that asks.
        let asking = awaiting(messages).and_then(|place| messages.get(place));
        AgentResult {
            message: asking.or_else(|| messages.last()).cloned(),
            artifacts: Arc::unwrap_or_clone(state.artifacts),
            finish_reason: None,
            output: None,
        }
    }

    /// Streams a status of the agent's own type to the client, outside any turn, and waits until the client
    /// has taken it.
    ///
    /// # Errors
    /// As [`Turn::send_status`].
    pub async fn send_status(&self, status: impl Serialize) -> Result<()> {
        self.signals.send_status(status).await
    }

    /// Returns how the invocation was called: which session or snapshot it resumes, and what it was given to
    /// begin with.
    ///
    /// The run of a lost worker that was taken over names the run's snapshot.
    pub fn init(&self) -> &AgentInit {
        &self.facts.init
    }

    /// Returns the ids of the snapshots that this invocation has written so far, in order.
    pub fn snapshot_ids(&self) -> Vec<SnapshotId> {
        self.facts.snapshots.lock().clone()
    }

    /// Returns the call's settings for the agent's prompt.
    pub(super) fn overrides(&self) -> Option<Arc<PromptOverrides>> {
        self.facts.overrides.clone()
    }

    /// Returns the names of the resources that messages of clients may link to.
    pub(super) fn resources(&self) -> &[String] {
        self.facts.definition.client_rules.resources()
    }

    /// Returns the context of the invocation: who calls, and whether the work is cancelled.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the session alone.
    pub fn session(&self) -> &Session<S> {
        &self.session
    }
}

impl<S> Deref for AgentSession<S> {
    type Target = Session<S>;

    fn deref(&self) -> &Session<S> {
        &self.session
    }
}

everturn_core::opaque_debug!(AgentSession<S>, facts.definition.name);

/// Returns the number of open calls whose outcome is unknown.
fn unknown_outcomes(messages: &History) -> usize {
    let asking = awaiting(messages).and_then(|place| messages.get(place));
    let open = asking.into_iter().flat_map(Message::interrupts);
    open.filter(|part| part.is_outcome_unknown()).count()
}

/// An input that passed validation.
#[derive(Default)]
struct ValidInput {
    /// The messages to add to the session before the turn: answers that close open requests, and the input's
    /// own.
    messages: Vec<Message>,
    /// The answers among them, or the requests that are put to the client again.
    reported: Vec<Part>,
    /// The place of the answers in the session.
    position: Option<usize>,
    /// Whether the turn ends at once, because its message waits for the answers to open requests.
    is_waiting: bool,
}

impl InvocationFacts {
    /// Returns the fields that inputs may set in addition to their message; `None` for inputs of this
    /// program.
    fn client_rules(&self) -> Option<&ClientRules> {
        self.is_of_client.then_some(&self.definition.client_rules)
    }

    /// Validates an input of a caller against the conversation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a field that the agent does not accept from clients, and for answers that do
    /// not fit the open requests; `FAILED_PRECONDITION` for a message that the agent does not take while
    /// requests are open.
    fn validate(&self, history: &History, input: &AgentInput, caller: &Context) -> Result<ValidInput> {
        if let Some(rules) = self.client_rules() {
            rules.check(input)?;
        }
        let messages: Vec<Message> = input.messages().cloned().collect();
        if let Some(answers) = given_answers(input) {
            // Before anything runs: a forged answer must not reach a tool.
            // A generation checks every answer against its tool, which may allow other inputs.
            let inputs = match &self.definition.prompt {
                Some(_) => RestartInputs::Edited,
                None => self.definition.restart_inputs,
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
            let closes_all = self.definition.while_interrupted == WhileInterrupted::CloseAll;
            part.is_reserved(caller) && (!closes_all || part.is_outcome_unknown())
        };
        match (self.definition.while_interrupted, asking) {
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

    fn is_expired(&self, asking: &Message) -> bool {
        let now = self.definition.clock.now();
        let is_expired = |part: &Part| part.approval().is_some_and(|question| question.is_expired(now));
        asking.interrupts().all(is_expired)
    }

    /// Returns the context with the circumstances in which the turn's tools ask and their questions are
    /// answered.
    fn enter(&self, context: Context, session: &SessionId) -> Context {
        let clock = self.definition.clock.clone();
        let questions = Questions::new(move || clock.now())
            .in_session(session.as_str())
            .allowing_edits(self.definition.restart_inputs == RestartInputs::Edited)
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
    fn chunk(&self, sends_positions: bool) -> Option<AgentStreamChunk> {
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

/// A turn that [`AgentSession::next_turn`] returned, with the [`Turn`] through `Deref`. [`OwnedTurn::end`]
/// ends it; one that is dropped instead has failed.
///
/// The loop's code runs in the context of the invocation. Code that looks for the turn in its context, for
/// example with [`TurnContext::current`](crate::TurnContext::current), is run as
/// `turn.context().clone().scope(..)`; [`Turn::generate`] and [`Turn::effect`] do so by themselves.
#[must_use = "a turn that is dropped has failed"]
pub struct OwnedTurn<S = Value> {
    turn: Turn<S>,
    /// Tells the handler how the turn ended.
    end: oneshot::Sender<HandlerResult<TurnResult>>,
    /// The turn, run as [`AgentSession::run`] runs it, with a handler that waits for `end`.
    running: BoxFuture<'static, Result<()>>,
}

impl<S: CustomState> OwnedTurn<S> {
    /// Runs a turn up to its handler; `None` if it ends before that.
    pub(super) async fn begin(session: AgentSession<S>, start: TurnStart) -> Result<Option<Self>> {
        let (show, shown) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut running: BoxFuture<'static, Result<()>> = Box::pin(async move {
            let mut channels = Some((show, ended));
            let mut handler = |turn: Turn<S>| {
                let channels = channels.take();
                async move {
                    let (show, ended) = channels.expect("a turn is handled once");
                    // The code that waits for the turn polls this future.
                    let _ = show.send(turn);
                    ended.await.unwrap_or_else(|_| Err(dropped().into()))
                }
            };
            session.run_turn(start, &mut handler).await
        });
        tokio::select! {
            biased;
            turn = shown => Ok(Some(Self {
                turn: turn.map_err(|_| dropped())?,
                end,
                running,
            })),
            outcome = &mut running => outcome.map(|()| None),
        }
    }

    /// Ends the turn: saves the session if there is a store, and then sends the end of the turn.
    ///
    /// # Errors
    /// The error of the store if the turn could not be saved; the client then receives the failure.
    /// `CANCELLED` or `DEADLINE_EXCEEDED` if the invocation has ended.
    pub async fn end(self, result: impl Into<TurnResult>) -> Result<()> {
        // The handler waits for as long as the turn is held here.
        let _ = self.end.send(Ok(result.into()));
        self.running.await
    }

    /// Ends the turn as failed, sends the failure to the client, and returns the error for the function to
    /// pass on. A function that continues with the next turn instead works on the session as it was before
    /// this turn, or as this turn [committed](Turn::committed) it.
    pub async fn fail(self, error: impl Into<HandlerError>) -> Error {
        let error = error.into();
        let _ = self.end.send(Err(error));
        self.running.await.err().unwrap_or_else(dropped)
    }
}

fn dropped() -> Error {
    Error::cancelled("the turn was dropped before its end")
}

impl<S> Deref for OwnedTurn<S> {
    type Target = Turn<S>;

    fn deref(&self) -> &Turn<S> {
        &self.turn
    }
}

everturn_core::opaque_debug!(OwnedTurn<S>, turn);
