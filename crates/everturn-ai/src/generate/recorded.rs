//! The loop's use of an [`EffectJournal`]: known outcomes are not produced again, and new ones are recorded before use.

use std::sync::{Arc, OnceLock};

use everturn_core::{Context, Error, Reason, Result};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::call::Call;
use super::chunk_index::ChunkIndex;
use super::tool_errors::ToolErrors;
use crate::effect::{journal_of, without_journal};
use crate::middleware::{GenerateRound, ToolCall};
use crate::usage_meter::MeteredRound;
use crate::{
    EffectId, EffectJournal, ModelEffect, ModelResponse, ModelResponseChunk, Part, Reconciliation, Role,
    ToolContext, ToolEffect, ToolOutcome, ToolRecord, interrupt_data, metadata, outcome_unknown, reason,
};

/// The only member of the data with which a call that was already made interrupts. It never leaves the loop.
const ALREADY_MADE: &str = "_everturn_already_made";

/// A model's reply, ready for use.
pub(super) struct Reply {
    pub(super) response: ModelResponse,
    /// The identity of the model call; `None` without a journal.
    pub(super) effect: Option<EffectId>,
}

impl Call {
    /// Asks the model, unless the journal knows its reply.
    pub(super) async fn reply(self: &Arc<Self>, round: &GenerateRound, index: &ChunkIndex) -> Result<Reply> {
        let Some(journal) = journal_of(&round.context) else {
            return Ok(Reply {
                response: self.ask_live(round, index).await?,
                effect: None,
            });
        };
        let asked = ModelEffect::new(&self.model_name, &round.request);
        let (effect, known) = journal.asking(asked).await?;
        // Boxed, so that a call under way has no room for it.
        let response = if let Some(response) = known.map(Box::new) {
            tracing::debug!(%effect, "a model's reply is known and is not paid for again");
            // The client may not have seen the chunks of the attempt that died.
            send_known(&response, round, index).await?;
            *response
        } else {
            let response = self.ask_live(round, index).await?;
            // Before any tool of the reply runs: a replay must come to the same calls.
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
    /// The journal's own error, which is no failure of the tool.
    fault: OnceLock<Error>,
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
            fault: OnceLock::new(),
        }))
    }

    /// Makes the call with `run`, unless the journal knows its outcome.
    pub(super) async fn around(
        self,
        call: ToolCall,
        choice: ToolErrors,
        run: impl FnOnce(ToolCall, Arc<Self>) -> BoxFuture<'static, Result<ToolOutcome>> + Send,
    ) -> Result<ToolOutcome> {
        match &self.known {
            ToolRecord::Nothing => self.live(call, choice, run).await,
            ToolRecord::Ended(outcome) => {
                tracing::debug!(effect = %self.id, tool = call.tool.name(), "a tool's result is known");
                Ok(outcome.clone())
            }
            // Not reconciled: a call that is still under way would be found not to have happened.
            ToolRecord::StartedElsewhere => unknown(&self.id),
            ToolRecord::AlreadyMade => Ok(ToolOutcome::Interrupted(already_made(&call.part))),
            ToolRecord::Started => match self.reconciled(&call).await? {
                Reconciliation::NeverHappened => self.live(call, choice, run).await,
                Reconciliation::Happened(outcome) => {
                    // Recorded like a live outcome, so that a further attempt does not reconcile again.
                    self.journal.ended(&self.id, &outcome).await?;
                    Ok(outcome)
                }
                Reconciliation::Unknown => unknown(&self.id),
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
        let result = run(call, Arc::clone(&recording)).await;
        let (journal, id) = (&recording.journal, &recording.id);
        // The journal's own error wins over the call's: what is not recorded must not be used.
        if let Some(fault) = recording.fault.get() {
            return Err(fault.clone());
        }
        match result {
            Ok(outcome) => {
                journal.ended(id, &outcome).await?;
                Ok(outcome)
            }
            Err(error) => {
                journal
                    .failed(id, &error, is_the_tools_own(&error, &context))
                    .await;
                Err(choice.failure(tool.name(), error, &context))
            }
        }
    }

    /// Records that the tool's own code is about to run, and returns the context for it.
    pub(super) async fn begin(&self, call: ToolCall) -> Result<ToolContext> {
        if let Err(error) = self.journal.started(&self.id).await {
            // A hook may swallow the error, and the call must fail all the same.
            let _ = self.fault.set(error.clone());
            return Err(error);
        }
        Ok(self.circumstances(call))
    }

    fn circumstances(&self, call: ToolCall) -> ToolContext {
        // Generations inside the tool have no journal: they are part of this effect.
        let context = self.journal.enter(&self.id, without_journal(call.context));
        ToolContext::for_request(context, call.part, call.emitter).with_effect(self.id.clone())
    }

    /// Asks the tool's reconcile function for the outcome of the call.
    async fn reconciled(&self, call: &ToolCall) -> Result<Reconciliation<ToolOutcome>> {
        let input = call.request().and_then(|request| request.input.clone());
        let found = call.tool.reconcile(input, self.circumstances(call.clone())).await;
        match found {
            Ok(found) => found.try_map(|response| Ok(ToolOutcome::Finished(response))),
            // The reconcile function may interrupt with a question of its own.
            Err(error) => match interrupt_data(&error) {
                Some(data) => Ok(Reconciliation::Happened(ToolOutcome::Interrupted(data.clone()))),
                None => Err(error.context(format_args!(
                    "the outcome of tool '{}' could not be determined",
                    call.tool.name()
                ))),
            },
        }
    }
}

/// Wraps the data of a question that is asked again because the call was already made. [`asked_again`] takes it out.
fn already_made(call: &Part) -> Value {
    let question = call.metadata_entry(metadata::RESOLVED_INTERRUPT);
    json!({ ALREADY_MADE: question })
}

/// Returns the data of a question that is asked again because the call was already made.
pub(super) fn asked_again(data: &Value) -> Option<&Value> {
    let members = data.as_object().filter(|members| members.len() == 1)?;
    members.get(ALREADY_MADE)
}

fn unknown(id: &EffectId) -> Result<ToolOutcome> {
    let question = outcome_unknown(id);
    match interrupt_data(&question) {
        Some(data) => Ok(ToolOutcome::Interrupted(data.clone())),
        None => Err(question),
    }
}

/// Returns whether the tool itself returned the error, which says that the call had no effect.
fn is_the_tools_own(error: &Error, context: &Context) -> bool {
    // After a panic or an invalid output the tool has run, and may have taken effect.
    !(context.is_over() || error.is(Reason::PANIC) || error.is(Reason::INVALID_OUTPUT))
}
