//! The loop's use of an [`EffectJournal`]: known outcomes are not produced again, and new ones are recorded
//! before use.

use std::sync::{Arc, OnceLock};

use everturn_core::{Error, Result, Status};
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::call::Call;
use super::chunk_index::ChunkIndex;
use super::tool_errors::{ToolErrors, failed_call_answer, had_no_effect};
use crate::effect::{journal_of, without_journal};
use crate::metadata::is_outcome_unknown;
use crate::tool::unknown_outcome;
use crate::usage_meter::MeteredRound;
use crate::{
    EffectId, EffectJournal, GenerateRound, ModelEffect, ModelResponse, ModelResponseChunk,
    MultipartToolResponse, Part, Questions, Reconciliation, Replay, Role, Tool, ToolCall, ToolContext,
    ToolEffect, ToolOutcome, ToolRecord, interrupt, interrupt_data, metadata, reason,
};

/// The only member of the interrupt data of a call that was already made. It never leaves the loop.
const ALREADY_MADE: &str = "_everturn_already_made";

/// A model's reply, ready for use.
pub(super) struct Reply {
    pub(super) response: ModelResponse,
    /// The identity of the model call; `None` without a journal.
    pub(super) effect: Option<EffectId>,
}

impl Call {
    /// Calls the model, unless the journal has its reply.
    pub(super) async fn reply(self: &Arc<Self>, round: &GenerateRound, index: &ChunkIndex) -> Result<Reply> {
        let Some(journal) = journal_of(&round.context) else {
            return Ok(Reply {
                response: self.ask_live(round, index).await?,
                effect: None,
            });
        };
        let asked = ModelEffect::new(&self.model_name, &round.request);
        let (effect, known) = journal.asking(asked).await?;
        // Boxed, so that the future of a running call stays small.
        let response = if let Some(response) = known.map(Box::new) {
            tracing::debug!(%effect, "a model's reply is known and is not paid for again");
            // The client may not have received the chunks of the attempt that died.
            send_known(&response, round, index).await?;
            *response
        } else {
            let response = self.ask_live(round, index).await?;
            // Recorded before any tool of the reply runs, because a replay must make the same calls.
            journal.replied(&effect, &response).await?;
            response
        };
        Ok(Reply {
            response,
            effect: Some(effect),
        })
    }

    async fn ask_live(self: &Arc<Self>, round: &GenerateRound, index: &ChunkIndex) -> Result<ModelResponse> {
        let chunks = index.stamping(&round.emitter);
        let metered = MeteredRound::begin(&round.context);
        match self
            .ask(round.request.clone(), chunks, round.context.clone())
            .await
        {
            Ok(response) => self.examined(response),
            Err(error) => {
                if error.is(reason::LIMIT_REACHED) {
                    metered.take_back();
                }
                Err(error)
            }
        }
    }
}

/// Streams a known reply as one chunk.
async fn send_known(response: &ModelResponse, round: &GenerateRound, index: &ChunkIndex) -> Result<()> {
    let Some(message) = response.message.as_ref().filter(|_| round.emitter.is_streaming()) else {
        return Ok(());
    };
    let chunk = ModelResponseChunk {
        role: Some(Role::Model),
        ..ModelResponseChunk::new(message.content())
    };
    round.emitter.send(index.stamped(chunk)).await
}

/// One tool call that the journal records.
pub(super) struct Recording {
    journal: Arc<dyn EffectJournal>,
    id: EffectId,
    known: ToolRecord,
    replay: Replay,
    /// The latest run of the tool's own code, if it must not run twice.
    run: Mutex<Run>,
    /// The journal's own error, which is not a failure of the tool.
    fault: OnceLock<Error>,
}

/// A run of the code of a tool that must not run twice.
enum Run {
    /// There was none, or it had no effect.
    None,
    /// It started, and may have taken effect; with the error with which it ended, if any.
    Begun(ToolContext, Option<Error>),
    /// It returned a response.
    Finished,
}

impl Recording {
    /// Creates the recording of a call; `None` without a journal.
    pub(super) async fn of(
        call: &ToolCall,
        reply: Option<&EffectId>,
        position: usize,
    ) -> Result<Option<Self>> {
        let (Some(journal), Some(request)) = (journal_of(&call.context), call.request()) else {
            return Ok(None);
        };
        // Only a restarted call was approved; the model may have copied the metadata of another one.
        let approval = call.answer().and_then(|_| call.part.approval());
        let effect = ToolEffect::new(reply, position, request, call.tool.replay())
            .approved(approval.as_ref(), call.tool.repeat());
        let (id, known) = journal.calling(effect).await?;
        Ok(Some(Self {
            journal,
            id,
            known,
            replay: call.tool.replay(),
            run: Mutex::new(Run::None),
            fault: OnceLock::new(),
        }))
    }

    /// Makes the call with `run`, unless the journal has its outcome.
    pub(super) async fn around(
        self,
        call: ToolCall,
        choice: ToolErrors,
        run: impl FnOnce(ToolCall, Arc<Self>) -> BoxFuture<'static, Result<ToolOutcome>> + Send,
    ) -> Result<ToolOutcome> {
        match &self.known {
            ToolRecord::Nothing => match self.found_since(&call).await? {
                Some(outcome) => {
                    self.journal.ended(&self.id, &outcome).await?;
                    Ok(outcome)
                }
                None => self.live(call, choice, run).await,
            },
            ToolRecord::Ended(outcome) => {
                tracing::debug!(effect = %self.id, tool = call.tool.name(), "a tool's result is known");
                Ok(outcome.clone())
            }
            // Not reconciled, because a call that is still in progress would be found not to have happened.
            ToolRecord::StartedElsewhere => Ok(ask(&call, &self.id, None)),
            ToolRecord::AlreadyMade => Ok(ToolOutcome::Interrupted(already_made(&call.part))),
            ToolRecord::CutShort => {
                let outcome = match self.reconciled(&call).await? {
                    Reconciliation::Happened(outcome) => outcome,
                    Reconciliation::NeverHappened => ToolOutcome::Finished(failed_call_answer(
                        Some(Status::Aborted),
                        "the call was cut short and did not take effect; make it again if it is still wanted",
                    )),
                    Reconciliation::Unknown => return Ok(ask(&call, &self.id, None)),
                };
                self.journal.ended(&self.id, &outcome).await?;
                Ok(outcome)
            }
            ToolRecord::Started => match self.reconciled(&call).await? {
                Reconciliation::NeverHappened => self.live(call, choice, run).await,
                Reconciliation::Happened(outcome) => {
                    // Recorded like a live outcome, so that a further attempt does not reconcile again.
                    self.journal.ended(&self.id, &outcome).await?;
                    Ok(outcome)
                }
                Reconciliation::Unknown => Ok(ask(&call, &self.id, None)),
            },
        }
    }

    async fn live(
        self,
        call: ToolCall,
        choice: ToolErrors,
        run: impl FnOnce(ToolCall, Arc<Self>) -> BoxFuture<'static, Result<ToolOutcome>> + Send,
    ) -> Result<ToolOutcome> {
        let (tool, context) = (call.tool.clone(), call.context.clone());
        let recording = Arc::new(self);
        let mut result = run(call.clone(), Arc::clone(&recording)).await;
        let (journal, id) = (&recording.journal, &recording.id);
        // The journal's own error takes precedence over the call's: an unrecorded outcome must not be used.
        if let Some(fault) = recording.fault.get() {
            return Err(fault.clone());
        }
        let mut is_unknown = recording.is_unknown(&result);
        // After the end of the work, only the next attempt can find that the call started.
        if is_unknown && !context.is_over() {
            (result, is_unknown) = recording.resolved(&call, result).await;
        }
        match result {
            Ok(outcome) if !is_unknown => {
                journal.ended(id, &outcome).await?;
                Ok(outcome)
            }
            Ok(_) => Err(Error::cancelled(
                "the work is over, and the outcome of a tool is unknown",
            )),
            Err(error) => {
                journal.failed(id, &error, !is_unknown).await;
                Err(choice.failure(tool.name(), error, &context))
            }
        }
    }

    /// Returns whether the call may have taken effect although it has no usable outcome.
    fn is_unknown(&self, result: &Result<ToolOutcome>) -> bool {
        match &*self.run() {
            // The arguments may have been rejected before the tool's own code ran.
            Run::Begun(context, _) => context.has_begun(),
            Run::Finished => result.is_err(),
            Run::None => matches!(result, Ok(ToolOutcome::Interrupted(data)) if is_outcome_unknown(data)),
        }
    }

    /// Determines the outcome of a call that may have taken effect, or asks for it. The second value is
    /// whether it is still unknown; a question about it is an outcome.
    async fn resolved(&self, call: &ToolCall, result: Result<ToolOutcome>) -> (Result<ToolOutcome>, bool) {
        let own = match &*self.run() {
            // A tool that reports an unknown outcome itself needs no further message.
            Run::Begun(_, error) => error.clone().filter(|error| interrupt_data(error).is_none()),
            _ => None,
        };
        let error = own.as_ref().or(result.as_ref().err());
        match self.reconciled(call).await {
            Ok(Reconciliation::Happened(outcome)) => (Ok(outcome), false),
            Ok(Reconciliation::NeverHappened) => (never_happened(&call.tool, result), false),
            Ok(Reconciliation::Unknown) => (Ok(ask(call, &self.id, error)), false),
            // As after a crash: the turn fails, and the next attempt reconciles again.
            Err(fault) => (Err(fault), true),
        }
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock()
    }

    /// Records that the tool's own code is about to run, and returns the context for it.
    ///
    /// # Errors
    /// The journal's own error; an interrupt if the code has run before in this call and may have taken
    /// effect: a hook cannot repeat a call that must not be made twice.
    pub(super) async fn begin(&self, call: ToolCall) -> Result<ToolContext> {
        if !matches!(&*self.run(), Run::None) {
            return Err(interrupt(unknown_outcome(&self.id, None)));
        }
        if let Err(error) = self.journal.started(&self.id).await {
            // A hook may ignore the error, and the call must still fail.
            let _ = self.fault.set(error.clone());
            return Err(error);
        }
        let context = self.circumstances(call);
        if self.replay == Replay::Once {
            *self.run() = Run::Begun(context.clone(), None);
        }
        Ok(context)
    }

    /// Records the end of the tool's own code.
    pub(super) fn end(&self, tool: &Tool, result: &Result<MultipartToolResponse>) {
        let mut run = self.run();
        if let Run::Begun(_, ended) = &mut *run {
            match result {
                Ok(_) => *run = Run::Finished,
                Err(error) if had_no_effect(tool, error) => *run = Run::None,
                Err(error) => *ended = Some(error.clone()),
            }
        }
    }

    fn circumstances(&self, call: ToolCall) -> ToolContext {
        // Generations inside the tool have no journal, because they are part of this effect.
        let context = self.journal.enter(&self.id, without_journal(call.context));
        ToolContext::for_request(context, call.part, call.emitter).with_effect(self.id.clone())
    }

    /// Calls the tool's reconcile function for the outcome of the call.
    async fn reconciled(&self, call: &ToolCall) -> Result<Reconciliation<ToolOutcome>> {
        reconciled(call, self.circumstances(call.clone())).await
    }

    /// Returns the outcome of a call that a person restarts because it has not happened, if its reconcile
    /// function finds that it has.
    async fn found_since(&self, call: &ToolCall) -> Result<Option<ToolOutcome>> {
        let asked = call.part.metadata_entry(metadata::RESOLVED_INTERRUPT);
        let Some(earlier) = asked.and_then(unknown_effect).filter(|_| call.answer().is_some()) else {
            return Ok(None);
        };
        let context = self
            .journal
            .enter(&self.id, without_journal(call.context.clone()));
        let context = ToolContext::for_request(context, call.part.clone(), call.emitter.clone());
        Ok(match reconciled(call, context.with_effect(earlier)).await? {
            Reconciliation::Happened(outcome) => Some(outcome),
            Reconciliation::NeverHappened | Reconciliation::Unknown => None,
        })
    }
}

/// Returns the identity of the call in the data of an interrupt, if the outcome of the call is unknown.
pub(super) fn unknown_effect(data: &Value) -> Option<EffectId> {
    let id = data.get("effectId").filter(|_| is_outcome_unknown(data))?;
    Some(id.as_str()?.into())
}

/// Calls the reconcile function of a tool.
pub(super) async fn reconciled(call: &ToolCall, context: ToolContext) -> Result<Reconciliation<ToolOutcome>> {
    let input = call.request().and_then(|request| request.input.clone());
    match call.tool.reconcile(input, context).await {
        Ok(found) => found.try_map(|response| Ok(ToolOutcome::Finished(response))),
        // The reconcile function may interrupt with its own question.
        Err(error) => match interrupt_data(&error) {
            Some(data) if is_outcome_unknown(data) => Ok(Reconciliation::Unknown),
            Some(data) => Ok(Reconciliation::Happened(ToolOutcome::Interrupted(data.clone()))),
            None => Err(error.context(format_args!(
                "the outcome of tool '{}' could not be determined",
                call.tool.name()
            ))),
        },
    }
}

/// Returns the result of a call that was found not to have taken effect: the error with which it ended, or
/// the answer about it for the model.
pub(super) fn never_happened(tool: &Tool, result: Result<ToolOutcome>) -> Result<ToolOutcome> {
    match result {
        Err(error) => Err(error.nothing_happened()),
        Ok(ToolOutcome::Interrupted(_)) => {
            let message = format!(
                "the call of tool '{}' did not take effect; try again",
                tool.name()
            );
            Err(Error::unavailable(message).with_public().nothing_happened())
        }
        other => other,
    }
}

/// Wraps the data of a question that is repeated because the call was already made. [`asked_again`] unwraps
/// it.
fn already_made(call: &Part) -> Value {
    let question = call.metadata_entry(metadata::RESOLVED_INTERRUPT);
    json!({ ALREADY_MADE: question })
}

/// Returns the data of a question that is repeated because the call was already made.
pub(super) fn asked_again(data: &Value) -> Option<&Value> {
    let members = data.as_object().filter(|members| members.len() == 1)?;
    members.get(ALREADY_MADE)
}

/// Returns the question for the outcome of a call, and alerts the operator.
pub(super) fn ask(call: &ToolCall, id: &EffectId, error: Option<&Error>) -> ToolOutcome {
    let questions = Questions::in_context(&call.context);
    tracing::warn!(
        tool = call.tool.name(),
        session = questions.as_deref().and_then(Questions::session),
        effect = %id,
        error = error.map(tracing::field::display),
        "the outcome of a tool call is unknown: the call is not repeated, and waits for an answer"
    );
    ToolOutcome::Interrupted(unknown_outcome(id, error))
}
