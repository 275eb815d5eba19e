//! The session as an agent's function sees it, and the loop that runs its turns.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use everturn_ai::effect::without_journal;
use everturn_ai::history::awaiting;
use everturn_ai::prompt::PromptOverrides;
use everturn_ai::{History, Message, UsageTotal, is_limit, with_repeated_calls};
use everturn_core::offload::{is_heavy, offload};
use everturn_core::{Context, Error, HandlerResult, Result, Schema, SpanKind, in_span};
use serde::Serialize;
use serde_json::Value;

use super::input_validation::InputValidation;
use super::owned_turn::OwnedTurn;
use super::signals::Signals;
use super::snapshots::CreatedSnapshots;
use super::turn::TurnStart;
use super::usage_tracker::UsageTracker;
use crate::invocation::failure_log::FailedWork;
use crate::invocation::turn_observer::{EndedTurn, TurnObservers};
use crate::policy::client_permissions::ClientRules;
use crate::policy::state_limit::StateLimit;
use crate::storage::session_state::decode_custom;
use crate::{
    AgentFinishReason, AgentInit, AgentResult, CustomState, Session, SessionState, SnapshotId, Turn,
    TurnResult,
};

/// The argument of an agent's function: the [`Session`], and the turns to run on it. Cloning is cheap.
pub struct AgentSession<S = Value> {
    session: Session<S>,
    context: Context,
    signals: Signals,
    facts: Arc<InvocationFacts>,
}

/// Facts about an invocation that its function can read.
pub(crate) struct InvocationFacts {
    pub(super) init: AgentInit,
    /// The call's settings for the agent's prompt.
    pub(super) overrides: Option<Arc<PromptOverrides>>,
    pub(super) snapshots: CreatedSnapshots,
    /// The name of the session flow, if the agent is one.
    pub(super) session_flow: Option<String>,
    pub(super) limit: StateLimit,
    pub(super) agent: String,
    /// The usage of the invocation so far.
    pub(super) usage: Arc<UsageTracker>,
    /// The number of equal calls that a model may make in a turn.
    pub(super) repeated_calls: u32,
    pub(super) observers: TurnObservers,
    pub(super) input_validation: InputValidation,
    /// The rules that name the agent's resources.
    pub(super) resources: ClientRules,
    /// The schema of the custom state; `None` if that may be any JSON.
    pub(super) custom_schema: Option<Schema>,
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
    pub(super) fn new(
        session: Session<S>,
        context: Context,
        signals: Signals,
        facts: InvocationFacts,
    ) -> Self {
        Self {
            session,
            context,
            signals,
            facts: Arc::new(facts),
        }
    }

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
        let TurnStart {
            input,
            place,
            journal,
            mut report,
        } = start;
        self.session.core().begin_turn();
        let name = match &self.facts.session_flow {
            Some(_) => format!("sessionFlow/turn/{}", place.turn_index),
            None => format!("runTurn-{}", place.turn_index + 1),
        };
        let place = Arc::new(place);
        let context = self.context.clone().with_extension(Arc::clone(&place));
        let context = with_repeated_calls(context, self.facts.repeated_calls);
        let context = match &journal {
            Some(journal) => journal.enter_turn(context),
            // The caller's context may hold the journal of another agent's turn, which is not this turn's.
            None => without_journal(context),
        };
        let (session, signals) = (&self.session, &self.signals);
        let facts = &*self.facts;
        let (flow, limit, input_validation) = (&facts.session_flow, &facts.limit, &facts.input_validation);
        let context = input_validation.enter(context, session.core().session_id());
        let settle = &mut report;
        let (began, used_before) = (Instant::now(), self.facts.usage.own());
        let mut finish_reason = None;
        let finished = &mut finish_reason;
        let outcome = in_span(
            &name,
            SpanKind::FlowStep,
            context,
            |context, recorder| async move {
                recorder.input(&input);
                facts.usage.take_up_turn().await?;
                let received = input_validation.validate(&session.messages(), &input, &context)?;
                if let Some(custom) = &input.custom {
                    let custom = replaced_custom(custom, facts.custom_schema.clone()).await?;
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
                    let context = match &input_validation.client_rules {
                        Some(rules) => {
                            let input = session.prompt_input();
                            rules.enter(context, &session.messages(), input.as_deref())
                        }
                        None => context,
                    };
                    let turn = Turn::new(session.clone(), *input, place, context, signals.clone());
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
                    if let Some(flow) = flow {
                        recorder.session_flow(flow, snapshot.as_str());
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
                agent: &self.facts.agent,
                session: self.session.core().session_id(),
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
        self.facts.observers.notify(&EndedTurn {
            agent: &self.facts.agent,
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
        });
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
        self.facts.snapshots.ids()
    }

    /// Returns the call's settings for the agent's prompt.
    pub(super) fn overrides(&self) -> Option<Arc<PromptOverrides>> {
        self.facts.overrides.clone()
    }

    /// Returns the names of the resources that messages of clients may link to.
    pub(super) fn resources(&self) -> &[String] {
        self.facts.resources.resources()
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

impl<S> Clone for AgentSession<S> {
    fn clone(&self) -> Self {
        Self {
            session: self.session.clone(),
            context: self.context.clone(),
            signals: self.signals.clone(),
            facts: Arc::clone(&self.facts),
        }
    }
}

impl<S: CustomState> fmt::Debug for AgentSession<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentSession").field(&self.session).finish()
    }
}

/// Returns the number of open calls whose outcome is unknown.
fn unknown_outcomes(messages: &History) -> usize {
    let asking = awaiting(messages).and_then(|place| messages.get(place));
    let open = asking.into_iter().flat_map(Message::interrupts);
    open.filter(|part| part.is_outcome_unknown()).count()
}
