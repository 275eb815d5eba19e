//! One run: a turn, encoded as events.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use everturn_agent::{AddedMessages, AgentFinishReason, AgentOutput, AgentStreamChunk, SnapshotId};
use everturn_ai::{OptionalMedia, Role, UsageTotal};
use everturn_core::stream_log::{JsonText, StreamEvent, StreamLog};
use everturn_core::{Context, Error, Result, RuntimeError, Status};
use everturn_server::{
    EncodedTurn, EventEncoder, MessagePosition, ServedAgent, ServedTurn, ServerHandle, TurnChunks, TurnPlan,
    WaitingCall, exposure_of, sse_response,
};
use futures::{Stream, StreamExt};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::active_runs::{ActiveRun, ActiveRuns, Thread};
use crate::answers::{interrupt, is_of_application, pending_of};
use crate::encoder::{TurnEncoder, TurnInfo};
use crate::input::RunInput;
use crate::plan::{Plan, plan};
use crate::run_log::{RunLog, RunRecorder};
use crate::stateless;

/// The name prefix of sub-agent tools.
const DELEGATES: &str = "delegate_to_";

/// Runs a turn and responds with its events.
///
/// # Errors
/// The error of a run that was rejected before it started.
pub(crate) async fn run(
    agent: &ServedAgent,
    body: &Bytes,
    (own_log, runs): (&Arc<dyn StreamLog>, &ActiveRuns),
    context: Context,
) -> Result<Response<Body>> {
    let input = RunInput::read(body).await?;
    let sent = input.client_messages()?;
    let log = RunLog::of(own_log, agent.name(), &input, &context);
    if let Some(entries) = log.earlier_run().await {
        return Ok(event_stream(again(entries)));
    }
    let mut plan = if agent.has_store() {
        Box::pin(plan(agent, &input, &sent, &log, &context)).await?
    } else {
        stateless::plan(agent, &input, &sent)?
    };
    // Front ends always send both, so an agent that does not accept them ignores them.
    if agent.accepts_tools() {
        plan.turn.input.tools = input.tools();
    }
    if agent.accepts_instructions() {
        plan.turn.input.instructions = input.instructions();
    }
    // A child context, so that stopping the run ends only this turn.
    let context = with_client(&context.child(), &input).with_extension(Arc::new(OptionalMedia));
    let active = runs.enter(Thread::of(agent.name(), &input.thread_id, &context));
    let turn = start_turn(agent, &plan.turn, &context).await?;
    let name = if plan.turn.is_stored {
        turn.name().to_owned()
    } else {
        uuid::Uuid::new_v4().simple().to_string()
    };
    let recorder = log.start_recording(&name).await;
    let encoder = RunEncoder {
        agent: agent.clone(),
        run: Run::of(&input),
        turn: TurnEncoder::new(info(agent, &plan, name.clone())),
        name,
        first: plan.first,
        pending: Vec::new(),
        stopped: active.stopped().clone(),
        recorder,
        is_committed: false,
        context: context.clone(),
    };
    let turn = StoppableTurn {
        turn: Some(turn),
        active,
        context,
    };
    Ok(event_stream(EncodedTurn::new(turn, encoder).into_stream()))
}

/// Starts a turn.
///
/// # Errors
/// The error of a turn that was rejected before the first model call.
async fn start_turn(agent: &ServedAgent, plan: &TurnPlan, context: &Context) -> Result<ServedTurn> {
    let context = plan.context(&agent.handed_off(context.clone()));
    // Only the client's tools, answers and state can be rejected. Agents around a prompt report that they
    // accepted the input, and a replaced state is reported as a change.
    let input = plan.input.clone();
    let is_checked = !input.tools.is_empty() || input.answers.is_some();
    let is_checked = is_checked && agent.is_prompted() || input.custom.is_some();
    let turn = ServedTurn::start(agent, plan.init.clone(), input, &context).await;
    let mut turn = turn.map_err(|outcome| refusal(&outcome))?;
    if is_checked && !turn.is_accepted(None).await {
        let outcome = turn.run_to_end().await;
        if outcome.as_ref().map_or(true, is_refusal) {
            return Err(refusal(outcome));
        }
    }
    Ok(turn)
}

/// Returns whether a turn failed before the first model call.
fn is_refusal(output: &AgentOutput) -> bool {
    let asked = output.usage.as_ref().is_some_and(|usage| usage.model_calls > 0);
    output.error.is_some() && !asked
}

fn refusal(outcome: &Result<AgentOutput>) -> Error {
    match outcome {
        Err(error) => error.clone(),
        Ok(AgentOutput {
            error: Some(RuntimeError { status, message, .. }),
            ..
        }) => Error::new(status.unwrap_or(Status::Unknown), message.clone()).with_public(),
        Ok(_) => Error::internal("the agent ended without running the turn"),
    }
}

/// Creates a response whose body is these events, one per line. Dropping the body drops the events.
pub(crate) fn event_stream(events: impl Stream<Item = Vec<JsonText>> + Send + 'static) -> Response<Body> {
    sse_response(events.map(|events| {
        let lines = events.iter().map(|event| format!("data: {event}\n\n"));
        lines.collect::<String>().into_bytes()
    }))
}

/// Returns the encoder's information about a turn.
fn info(agent: &ServedAgent, plan: &Plan, name: String) -> TurnInfo {
    TurnInfo {
        name,
        waiting: plan.waiting.clone(),
        answered: plan.answered.clone(),
        delegates: delegates(agent),
    }
}

/// Returns the tools that delegate to other agents.
pub(crate) fn delegates(agent: &ServedAgent) -> HashMap<String, String> {
    let others = agent.others().into_iter();
    others
        .map(|other| (format!("{DELEGATES}{other}"), other))
        .collect()
}

fn with_client(context: &Context, input: &RunInput) -> Context {
    let Some(properties) = &input.forwarded_props else {
        return context.clone();
    };
    let client = json!({ "forwardedProps": properties });
    context.clone().with_value("client", client)
}

/// Returns the events of a repeated run. If the original run was stopped, an error ends them.
fn again(entries: everturn_core::stream_log::Entries) -> impl Stream<Item = Vec<JsonText>> + Send {
    let stopped = json!({
        "type": "RUN_ERROR", "message": "the run was stopped before it ended", "code": Status::Cancelled.name(),
    });
    let mut is_over = false;
    entries.map(move |entry| match entry.map(|entry| entry.event) {
        Ok(StreamEvent::Chunk(event)) => {
            is_over = is_terminal(event.as_str());
            vec![event]
        }
        Ok(StreamEvent::Done(_)) => Vec::new(),
        _ if is_over => Vec::new(),
        _ => JsonText::of(&stopped).into_iter().collect(),
    })
}

fn is_terminal(event: &str) -> bool {
    let kind = serde_json::from_str::<Value>(event).map(|event| event["type"].clone());
    kind.is_ok_and(|kind| kind == "RUN_FINISHED" || kind == "RUN_ERROR")
}

/// The names of a run and the version of its client.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    thread: String,
    id: String,
    parent: Option<String>,
    is_current: bool,
}

impl Run {
    pub(crate) fn of(input: &RunInput) -> Self {
        Self {
            thread: input.thread_id.clone(),
            id: input.run_id.clone(),
            parent: input.parent_run_id.clone(),
            is_current: input.is_current(),
        }
    }

    pub(crate) fn started(&self) -> Value {
        let mut event = json!({
            "type": "RUN_STARTED", "threadId": self.thread, "runId": self.id, "protocolVersion": "1.0",
        });
        if let Some(parent) = &self.parent {
            event["parentRunId"] = parent.as_str().into();
        }
        event
    }

    /// Returns the end of a run that waits for these calls.
    pub(crate) fn finished(
        &self,
        agent: &ServedAgent,
        pending: &[WaitingCall],
        details: Map<String, Value>,
    ) -> Value {
        let questions: Vec<Value> = pending
            .iter()
            .filter(|open| !is_of_application(open))
            .map(|open| interrupt(open, agent))
            .collect();
        let calls: Vec<&str> = pending.iter().map(|open| open.id.as_str()).collect();
        let outcome = if !questions.is_empty() {
            json!({ "type": "interrupt", "interrupts": questions })
        } else if self.is_current && !calls.is_empty() {
            json!({ "type": "success", "pendingToolCallIds": calls })
        } else {
            json!({ "type": "success" })
        };
        self.ended(&outcome, details)
    }

    /// Returns the end of a run that was stopped. Clients before version 1.0 only support errors.
    pub(crate) fn cancelled(&self, details: Map<String, Value>) -> Value {
        if self.is_current {
            return self.ended(&json!({ "type": "cancelled" }), details);
        }
        let error = RuntimeError::new(Status::Cancelled, "the run was stopped");
        failed(&error, details)
    }

    fn ended(&self, outcome: &Value, details: Map<String, Value>) -> Value {
        let mut event = json!({
            "type": "RUN_FINISHED", "threadId": self.thread, "runId": self.id, "outcome": outcome,
        });
        if let Value::Object(event) = &mut event {
            event.extend(details);
        }
        event
    }
}

/// Returns the end of a run that failed.
pub(crate) fn failed(error: &RuntimeError, mut details: Map<String, Value>) -> Value {
    details.shift_remove("result");
    let mut event = json!({
        "type": "RUN_ERROR",
        "message": error.message,
        "code": error.status.unwrap_or(Status::Unknown).name(),
    });
    if let Value::Object(event) = &mut event {
        event.extend(details);
    }
    event
}

/// Returns the error of a run whose turn continues on another server.
fn handed_off() -> RuntimeError {
    RuntimeError::new(
        Status::Unavailable,
        "the server is shutting down; the run continues in the background: connect to the thread to watch it",
    )
}

/// The turn of a run, which ends when the run is stopped.
struct StoppableTurn {
    /// `None` once the turn has ended.
    turn: Option<ServedTurn>,
    active: ActiveRun,
    context: Context,
}

impl TurnChunks for StoppableTurn {
    async fn next_chunks(&mut self) -> Vec<AgentStreamChunk> {
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        tokio::select! {
            biased;
            () = self.active.stopped().cancelled() => Vec::new(),
            chunks = turn.next() => chunks,
        }
    }

    async fn take_output(&mut self) -> Result<AgentOutput> {
        let stopped = || Error::cancelled("the run was stopped").with_public();
        // Dropped at once, so that the thread is free when the client receives the end.
        let Some(mut turn) = self.turn.take() else {
            return Err(stopped());
        };
        tokio::select! {
            biased;
            () = self.active.stopped().cancelled() => {
                self.context.cancel();
                Err(stopped())
            }
            output = turn.output() => output,
        }
    }
}

/// Encodes the turn of a run.
struct RunEncoder {
    agent: ServedAgent,
    run: Run,
    /// The name that ids contain.
    name: String,
    turn: TurnEncoder,
    /// The events that follow the start.
    first: Vec<Value>,
    /// The calls that wait at the end of the turn.
    pending: Vec<WaitingCall>,
    /// Cancelled when the run is stopped.
    stopped: CancellationToken,
    /// Stores the events for a client that sends the run again.
    recorder: RunRecorder,
    is_committed: bool,
    context: Context,
}

impl EventEncoder for RunEncoder {
    type Event = JsonText;

    fn start(&mut self) -> Vec<JsonText> {
        let mut events = vec![self.run.started()];
        events.append(&mut self.first);
        texts(&events)
    }

    fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<JsonText> {
        if let Some(end) = &chunk.turn_end {
            self.is_committed |= end.snapshot_id.is_some();
            if let Some(added) = &end.added {
                self.pending = pending_at_the_end(&self.agent, added, &self.name);
            }
        }
        texts(&self.turn.chunk(chunk))
    }

    async fn end(&mut self, outcome: Result<AgentOutput>) -> Vec<JsonText> {
        texts(&self.ended(&outcome))
    }

    async fn record(&mut self, events: &[JsonText], is_end: bool) {
        self.recorder.events.append(events.iter().cloned()).await;
        if is_end {
            self.recorder.finish(self.is_committed).await;
        }
    }
}

fn texts(events: &[Value]) -> Vec<JsonText> {
    events
        .iter()
        .filter_map(|event| JsonText::of(event).ok())
        .collect()
}

impl RunEncoder {
    fn ended(&mut self, output: &Result<AgentOutput>) -> Vec<Value> {
        let is_shutting_down = || {
            let handle = self.context.extension::<ServerHandle>();
            handle.is_some_and(|handle| handle.is_shutting_down())
        };
        let (reason, failure, details) = match output {
            Ok(output) => (output.finish_reason, output.error.clone(), self.details(output)),
            Err(error) => {
                let reason = match error.status() {
                    Status::Cancelled => AgentFinishReason::Aborted,
                    _ => AgentFinishReason::Failed,
                };
                let details = metadata(&self.run.thread, None, Some(reason));
                (None, Some(error.to_wire(exposure_of(&self.context))), details)
            }
        };
        let is_cancelled = failure
            .as_ref()
            .is_some_and(|error| error.status == Some(Status::Cancelled));
        let failure = match reason {
            Some(AgentFinishReason::Detached) => Some(handed_off()),
            _ if is_cancelled && !self.stopped.is_cancelled() && is_shutting_down() => Some(handed_off()),
            _ => failure,
        };
        let mut events = self
            .turn
            .close_all(failure.as_ref().map(|error| error.message.as_str()));
        // A turn that was stopped by a limit is a failure for its user.
        let is_stopped = match &failure {
            Some(error) => error.status == Some(Status::Cancelled),
            None => reason == Some(AgentFinishReason::Aborted),
        };
        events.push(match failure {
            _ if is_stopped => self.run.cancelled(details),
            Some(error) => failed(&error, details),
            None => self.run.finished(&self.agent, &self.pending, details),
        });
        events
    }

    /// Returns the additional fields at the end of a run.
    fn details(&self, output: &AgentOutput) -> Map<String, Value> {
        let mut details = metadata(
            &self.run.thread,
            output.snapshot_id.as_ref(),
            output.finish_reason,
        );
        details.extend(
            output
                .usage
                .as_ref()
                .and_then(usage)
                .map(|usage| ("usage".into(), usage)),
        );
        details.extend(output.output.clone().map(|result| ("result".into(), result)));
        details
    }
}

/// Returns the metadata at the end of a run.
pub(crate) fn metadata(
    session: &str,
    snapshot: Option<&SnapshotId>,
    reason: Option<AgentFinishReason>,
) -> Map<String, Value> {
    let mut own = json!({ "sessionId": session });
    if let Some(snapshot) = snapshot {
        own["snapshotId"] = snapshot.as_str().into();
    }
    if let Some(reason) = reason {
        own["finishReason"] = reason.as_str().into();
    }
    Map::from_iter([("metadata".to_owned(), json!({ "everturn": own }))])
}

fn pending_at_the_end(agent: &ServedAgent, added: &AddedMessages, name: &str) -> Vec<WaitingCall> {
    let last = added
        .messages
        .last()
        .filter(|message| message.role() == Role::Model);
    let place = added.position + added.messages.len().saturating_sub(1);
    last.map(|last| {
        pending_of(last, agent, |number| {
            MessagePosition::new(place, number).id("call", name)
        })
    })
    .unwrap_or_default()
}

/// Returns the token counts of a turn, if its model reported any.
fn usage(total: &UsageTotal) -> Option<Value> {
    let counts = [
        ("inputTokens", total.input_tokens),
        ("outputTokens", total.output_tokens),
        ("totalTokens", total.input_tokens + total.output_tokens),
        ("reasoningTokens", total.thoughts_tokens),
        ("cachedInputTokens", total.cached_content_tokens),
    ];
    // An unknown count is omitted.
    let known: Map<String, Value> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    (!known.is_empty()).then(|| json!([known]))
}
