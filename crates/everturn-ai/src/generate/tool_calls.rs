//! Running all tools that one message requests concurrently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_core::{ActionType, Context, Error, Result, SpanKind, catch_panic, in_span};
use futures::StreamExt;
use futures::future::{BoxFuture, abortable};
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::call::Call;
use super::chunk_index::ChunkIndex;
use super::partial::unobserved;
use super::recorded::{Recording, ask, never_happened, reconciled, unknown_effect};
use super::repetition::{Verdict, judge, without_repetitions};
use crate::window::without_window;
use crate::{
    Approval, EffectId, FinishReason, GenerateRound, Message, ModelResponse, MultipartToolResponse, NextTool,
    Part, Reconciliation, Tool, ToolCall, ToolContext, ToolOutcome, ToolResponse, interrupt_data, metadata,
};

const INTERRUPTED: &str = "One or more tool calls resulted in interrupts.";

/// The outcomes of all tool calls of a message, in the order of its requests.
pub(super) struct ToolOutcomes {
    message: Message,
    outcomes: Vec<ToolOutcome>,
    /// The question about each call that was interrupted.
    questions: Vec<Option<Approval>>,
}

impl ToolOutcomes {
    pub(super) fn is_interrupted(&self) -> bool {
        self.outcomes
            .iter()
            .any(|outcome| matches!(outcome, ToolOutcome::Interrupted(_)))
    }

    /// Returns the message with the tools' answers.
    pub(super) fn message(&self) -> Message {
        let answer = |(request, outcome): (&Part, &ToolOutcome)| match outcome {
            ToolOutcome::Finished(response) => answer(request, response.clone()),
            ToolOutcome::Interrupted(_) => None,
        };
        Message::tool(
            self.message
                .tool_request_parts()
                .zip(&self.outcomes)
                .filter_map(answer)
                .collect::<Vec<_>>(),
        )
    }

    /// Returns the model's response in the form that waits for answers: finished calls keep their output,
    /// interrupted ones contain their data.
    pub(super) fn interrupted(self, response: ModelResponse) -> ModelResponse {
        let mut outcomes = self.outcomes.into_iter().zip(self.questions);
        let mut annotated = |part: &Part| {
            let outcome = part.as_tool_request().and_then(|_| outcomes.next());
            outcome.map_or_else(
                || part.clone(),
                |(outcome, question)| waiting(part.clone(), outcome).with_approval(question.as_ref()),
            )
        };
        let content: Vec<Part> = self.message.content().iter().map(&mut annotated).collect();
        ModelResponse {
            message: Some(self.message.with_content(content)),
            ..interrupted(response)
        }
    }
}

/// Returns the response as one that was interrupted.
pub(super) fn interrupted(response: ModelResponse) -> ModelResponse {
    ModelResponse {
        finish_reason: Some(FinishReason::Interrupted),
        finish_message: Some(INTERRUPTED.to_owned()),
        ..response
    }
}

/// Returns a tool request in the form that waits with others for answers.
pub(super) fn waiting(part: Part, outcome: ToolOutcome) -> Part {
    match outcome {
        ToolOutcome::Interrupted(data) => part.with_metadata_entry(metadata::INTERRUPT, data),
        ToolOutcome::Finished(response) => {
            let output = response.output.unwrap_or_default();
            let part = part.with_metadata_entry(metadata::PENDING_OUTPUT, output);
            match serde_json::to_value(response.content) {
                Ok(Value::Array(content)) if !content.is_empty() => {
                    part.with_metadata_entry(metadata::PENDING_CONTENT, content)
                }
                _ => part,
            }
        }
    }
}

/// Returns the part that answers a tool request.
pub(super) fn answer(request: &Part, response: MultipartToolResponse) -> Option<Part> {
    let answer = ToolResponse {
        output: response.output,
        ..ToolResponse::to(request.as_tool_request()?, Value::Null).with_content(response.content)
    };
    let part = Part::from(answer);
    Some(match response.metadata {
        Some(metadata) => part.with_metadata(metadata),
        None => part,
    })
}

impl Call {
    /// Runs every tool that `message` requests; fails before running any if one does not exist.
    pub(super) async fn run_tools(
        self: &Arc<Self>,
        round: &GenerateRound,
        message: &Message,
        reply: Option<&EffectId>,
        index: &ChunkIndex,
    ) -> Result<ToolOutcomes> {
        let calls = message.tool_request_parts().cloned().collect();
        let outcomes = self.run_requests(round, calls, reply, index).await?;
        let requests = message.tool_request_parts();
        let questions = requests
            .zip(&outcomes)
            .map(|(part, outcome)| self.question(part, outcome, &round.context))
            .collect();
        Ok(ToolOutcomes {
            message: message.clone(),
            outcomes,
            questions,
        })
    }

    /// Returns the question about a call, if it was interrupted.
    pub(super) fn question(&self, part: &Part, outcome: &ToolOutcome, context: &Context) -> Option<Approval> {
        let ToolOutcome::Interrupted(data) = outcome else {
            return None;
        };
        let request = part.as_tool_request()?;
        self.tools
            .get(&request.name)
            .ok()?
            .question(request, data, context)
    }

    /// Runs tool requests concurrently and returns their outcomes in order. `reply` identifies the model's
    /// reply that contains the requests, if a journal records it.
    pub(super) async fn run_requests(
        self: &Arc<Self>,
        round: &GenerateRound,
        parts: Vec<Part>,
        reply: Option<&EffectId>,
        index: &ChunkIndex,
    ) -> Result<Vec<ToolOutcome>> {
        // A child context, so that a failing tool can cancel its siblings and nothing else.
        let context = without_repetitions(without_window(unobserved(round.context.child())));
        let verdicts = judge(&round.context, &parts)?;
        let emitter = index.stamping_one_by_one(&round.emitter);
        let mut calls = Vec::with_capacity(parts.len());
        // All tools are looked up before the first one runs: an unknown name that ends the generation must
        // not leave half of the calls done.
        for (part, verdict) in parts.into_iter().zip(verdicts) {
            if let Verdict::Answer(warning) = verdict {
                calls.push(Err(warning));
                continue;
            }
            let name = part
                .as_tool_request()
                .map(|request| request.name.as_str())
                .unwrap_or_default();
            let call = match self.tools.get(name) {
                Ok(tool) => Ok(ToolCall {
                    tool: tool.clone(),
                    part,
                    emitter: emitter.clone(),
                    context: context.clone(),
                    registry: self.registry.clone(),
                }),
                Err(error) => Err(self.mistakes.answer_to(self.tool_errors, error, &context)?),
            };
            calls.push(call);
        }
        // In order, because the journal numbers equal calls by the order in which it receives them.
        let mut running: Vec<BoxFuture<'static, _>> = Vec::with_capacity(calls.len());
        for (position, call) in calls.into_iter().enumerate() {
            running.push(match call {
                Ok(call) => {
                    let recording = Recording::of(&call, reply, position).await?;
                    self.run_tool(call, recording)
                }
                Err(answer) => Box::pin(async { Ok(ToolOutcome::Finished(answer)) }),
            });
        }
        let outcomes = in_order(running).await;
        self.mistakes.end_round();
        if outcomes.is_err() {
            // Reaches work that the dropped tools have spawned elsewhere.
            context.cancel();
        }
        outcomes
    }

    fn run_tool(
        self: &Arc<Self>,
        call: ToolCall,
        recording: Option<Recording>,
    ) -> BoxFuture<'static, Result<ToolOutcome>> {
        let live = Arc::clone(self);
        match recording {
            None => Box::pin(async move {
                let outcome = Arc::clone(&live).run_hooked(call.clone(), None).await;
                let outcome = determined(&call, outcome).await;
                outcome.map_err(|error| live.tool_errors.failure(call.tool.name(), error, &call.context))
            }),
            Some(recording) => Box::pin(recording.around(call, self.tool_errors, move |call, recording| {
                Box::pin(async move { live.run_hooked(call, Some(recording)).await })
            })),
        }
    }

    /// Runs a tool through the tool hooks.
    async fn run_hooked(
        self: Arc<Self>,
        call: ToolCall,
        recording: Option<Arc<Recording>>,
    ) -> Result<ToolOutcome> {
        let (tool, context) = (call.tool.clone(), call.context.clone());
        // If a hook answered in the tool's place, there is no span of the tool yet.
        let has_run = Arc::new(AtomicBool::new(false));
        let core = core(Arc::clone(&has_run), recording);
        let input = call.request().and_then(|request| request.input.clone());
        let hooked = async { NextTool::around_tool(&self.chain, core).run(call).await };
        let result = catch_panic(tool.name(), hooked).await;
        if !has_run.load(Ordering::Relaxed) {
            record_short_circuit(&tool, input, &result, context.clone()).await;
        }
        match result {
            Ok(response) => Ok(ToolOutcome::Finished(response)),
            // An interrupt travels as an error through the hooks and is an outcome outside of them.
            Err(error) => match interrupt_data(&error) {
                Some(data) => Ok(ToolOutcome::Interrupted(data.clone())),
                None => self
                    .mistakes
                    .answer_to(self.tool_errors, error, &context)
                    .map(ToolOutcome::Finished),
            },
        }
    }
}

/// Determines the outcome of a call without a journal whose tool reports that it is unknown.
async fn determined(call: &ToolCall, outcome: Result<ToolOutcome>) -> Result<ToolOutcome> {
    let unknown = match &outcome {
        Ok(ToolOutcome::Interrupted(data)) => unknown_effect(data),
        _ => None,
    };
    let Some(id) = unknown else {
        return outcome;
    };
    let context = ToolContext::for_request(call.context.clone(), call.part.clone(), call.emitter.clone());
    match reconciled(call, context.with_effect(id.clone())).await? {
        Reconciliation::Happened(outcome) => Ok(outcome),
        Reconciliation::NeverHappened => never_happened(&call.tool, outcome),
        Reconciliation::Unknown => Ok(ask(call, &id, None)),
    }
}

/// Returns the centre of the tool hooks: the tool itself.
fn core(
    has_run: Arc<AtomicBool>,
    recording: Option<Arc<Recording>>,
) -> impl Fn(ToolCall) -> BoxFuture<'static, Result<MultipartToolResponse>> + Send + Sync {
    move |call| {
        has_run.store(true, Ordering::Relaxed);
        let recording = recording.clone();
        Box::pin(async move {
            let input = call.request().and_then(|request| request.input.clone());
            let tool = call.tool.clone();
            // Checked before the call is recorded as started: a call that a limit forbids has not taken
            // effect.
            let metered = tool.metered(&call.context).await?;
            let context = match &recording {
                Some(recording) => recording.begin(call).await?,
                None => ToolContext::for_request(call.context, call.part, call.emitter),
            };
            let result = tool.run_metered(metered, input, context).await;
            if let Some(recording) = &recording {
                recording.end(&tool, &result);
            }
            result
        })
    }
}

/// Records the span that the tool would have left, for a call that a hook answered in its place.
async fn record_short_circuit(
    tool: &Tool,
    input: Option<Value>,
    result: &Result<MultipartToolResponse>,
    context: Context,
) {
    let recorded: Result<()> = in_span(
        tool.name(),
        SpanKind::Action(&ActionType::TOOL),
        context,
        |_, recorder| async move {
            recorder.input(&input);
            recorder.output(&result.as_ref().map_err(Clone::clone)?.output);
            Ok(())
        },
    )
    .await;
    // The caller of the hooks reports the failure, if there is one.
    drop(recorded);
}

/// Runs futures concurrently and reports the first failure *in order*: the futures after a failed one are
/// dropped at once, and those before it may still fail instead.
async fn in_order<T>(calls: Vec<BoxFuture<'static, Result<T>>>) -> Result<Vec<T>> {
    let mut handles = Vec::with_capacity(calls.len());
    let mut running = FuturesUnordered::new();
    for (position, call) in calls.into_iter().enumerate() {
        // Abortable, because a future cannot be removed from the set by its index.
        let (call, handle) = abortable(call);
        handles.push(handle);
        running.push(async move { (position, call.await) });
    }
    let mut finished: Vec<Option<T>> = handles.iter().map(|_| None).collect();
    let mut failed: Option<(usize, Error)> = None;
    while let Some((position, result)) = running.next().await {
        match result {
            Err(_aborted) => {}
            Ok(Ok(value)) => finished[position] = Some(value),
            Ok(Err(error)) if failed.as_ref().is_none_or(|(first, _)| position < *first) => {
                // Calls before it continue: an earlier failure takes precedence, so the result does not
                // depend on timing. Those after the first failure so far are already aborted.
                let until = failed.as_ref().map_or(handles.len(), |(first, _)| *first);
                handles[position..until]
                    .iter()
                    .for_each(futures::future::AbortHandle::abort);
                failed = Some((position, error));
            }
            Ok(Err(_)) => {}
        }
    }
    match failed {
        Some((_, error)) => Err(error),
        None => Ok(finished.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(millis: u64, result: Result<u64>) -> BoxFuture<'static, Result<u64>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            result
        })
    }

    #[tokio::test(start_paused = true)]
    async fn results_come_in_order_whatever_finishes_first() {
        let results = in_order(vec![after(30, Ok(1)), after(10, Ok(2)), after(20, Ok(3))]).await;

        assert_eq!(results.unwrap(), [1, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_failure_in_order_wins_and_later_calls_are_dropped() {
        let started = tokio::time::Instant::now();
        let calls = vec![
            after(30, Err(Error::internal("first"))),
            after(10, Err(Error::internal("second"))),
            after(1_000_000, Ok(3)),
        ];

        let error = in_order(calls).await.unwrap_err();

        assert_eq!(error.message(), "first");
        assert_eq!(started.elapsed(), Duration::from_millis(30));
    }
}
