//! One run: a turn, told as events.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use everturn_agent::{AddedMessages, AgentFinishReason, AgentOutput, SnapshotId};
use everturn_ai::{OptionalMedia, Role, UsageTotal};
use everturn_core::stream_log::{JsonText, StreamEvent, StreamLog};
use everturn_core::{Context, Result, RuntimeError, Status};
use everturn_server::{ServedAgent, ServedTurn, ServerHandle, exposure_of};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::answers::{Pending, pending_of};
use crate::client_kept;
use crate::event_stream::event_stream;
use crate::ids::Place;
use crate::input::RunInput;
use crate::kept::{Keeping, Kept};
use crate::plan::{Plan, plan};
use crate::running::{Runs, Thread, UnderWay};
use crate::teller::{Setting, Teller};
use crate::turn::start;

/// What the tools of sub-agents are called like, before the agent's name.
const DELEGATES: &str = "delegate_to_";

/// Runs a turn and answers with its events.
///
/// # Errors
/// The error of a run that was refused before it began.
pub(crate) async fn run(
    agent: &ServedAgent,
    body: &Bytes,
    (log, runs): (&Arc<dyn StreamLog>, &Runs),
    context: Context,
) -> Result<Response<Body>> {
    let input = RunInput::read(body).await?;
    let shown = input.shown()?;
    let kept = Kept::of(log, agent.name(), &input, &context);
    if let Some(entries) = kept.made_before().await {
        return Ok(event_stream(again(entries)));
    }
    let mut plan = if agent.has_store() {
        Box::pin(plan(agent, &input, &shown, &kept, &context)).await?
    } else {
        client_kept::plan(agent, &input, &shown)?
    };
    // Front ends always send both, so they are ignored where the agent does not accept them.
    if agent.accepts_tools() {
        plan.input.tools = input.tools();
    }
    if agent.accepts_instructions() {
        plan.input.instructions = input.instructions();
    }
    // A child, so that stopping the run ends this turn and nothing else.
    let context = with_client(&context.child(), &input).with_extension(Arc::new(OptionalMedia));
    let under_way = runs.enter(Thread::of(agent.name(), &input.thread_id, &context));
    let turn = start(agent, &mut plan, &context).await?;
    let name = if plan.is_kept_by_client {
        uuid::Uuid::new_v4().simple().to_string()
    } else {
        turn.name().to_owned()
    };
    let keeping = kept.keep(&name).await;
    let teller = Teller::new(setting(agent, &plan, name.clone()));
    // Boxed, because the stream moves it for every event.
    let telling = Box::new(Telling {
        agent: agent.clone(),
        input: Run::of(&input),
        name,
        turn: Some(turn),
        teller,
        first: plan.first,
        pending: Vec::new(),
        under_way,
        keeping,
        is_committed: false,
        context,
        phase: Phase::Beginning,
    });
    Ok(event_stream(futures::stream::unfold(
        telling,
        |mut telling| async move {
            let events = telling.next().await?;
            Some((events, telling))
        },
    )))
}

/// Returns what must be known of a turn to tell it.
fn setting(agent: &ServedAgent, plan: &Plan, name: String) -> Setting {
    Setting {
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

/// Returns the events of a run that was made before, and ends them if the run did not.
fn again(entries: everturn_core::stream_log::Entries) -> impl futures::Stream<Item = Vec<JsonText>> + Send {
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

/// The names of a run, and what its client understands.
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
    pub(crate) fn finished(&self, pending: &[Pending], details: Map<String, Value>) -> Value {
        let questions: Vec<Value> = pending
            .iter()
            .filter(|open| !open.is_of_application())
            .map(Pending::interrupt)
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

    /// Returns the end of a run that was stopped. Clients from before 1.0 know only errors.
    pub(crate) fn cancelled(&self, details: Map<String, Value>) -> Value {
        if self.is_current {
            return self.ended(&json!({ "type": "cancelled" }), details);
        }
        let error = RuntimeError {
            status: Some(Status::Cancelled),
            message: "the run was stopped".into(),
            details: None,
        };
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

/// Returns the error of a run whose turn goes on without this server.
fn handed_off() -> RuntimeError {
    RuntimeError {
        status: Some(Status::Unavailable),
        message:
            "the server is shutting down; the run goes on in the background: connect to the thread to see it"
                .into(),
        details: None,
    }
}

/// A turn that is being told.
struct Telling {
    agent: ServedAgent,
    input: Run,
    /// The name that ids contain.
    name: String,
    /// `None` once the turn is over.
    turn: Option<ServedTurn>,
    teller: Teller,
    /// The events that follow the start.
    first: Vec<Value>,
    /// The calls that wait at the end of the turn.
    pending: Vec<Pending>,
    under_way: UnderWay,
    /// Keeps the events for a client that sends the run again.
    keeping: Keeping,
    is_committed: bool,
    context: Context,
    phase: Phase,
}

enum Phase {
    Beginning,
    Running,
    Over,
}

impl Telling {
    /// Waits for the next events; `None` after the last.
    async fn next(&mut self) -> Option<Vec<JsonText>> {
        let events = match self.phase {
            Phase::Over => return None,
            Phase::Beginning => {
                self.phase = Phase::Running;
                let mut events = vec![self.input.started()];
                events.append(&mut self.first);
                events
            }
            Phase::Running => self.running().await,
        };
        let texts: Vec<JsonText> = events
            .iter()
            .filter_map(|event| JsonText::of(event).ok())
            .collect();
        self.keeping.add(&texts).await;
        if matches!(self.phase, Phase::Over) {
            self.keeping.end(self.is_committed).await;
        }
        Some(texts)
    }

    async fn running(&mut self) -> Vec<Value> {
        let Self {
            turn: Some(turn),
            under_way,
            context,
            ..
        } = self
        else {
            return Vec::new();
        };
        loop {
            let next = tokio::select! {
                biased;
                () = under_way.stopped().cancelled() => break,
                next = turn.next() => next,
            };
            if next.is_empty() {
                let output = tokio::select! {
                    biased;
                    () = under_way.stopped().cancelled() => break,
                    output = turn.output() => output,
                };
                self.phase = Phase::Over;
                return self.ended(&output);
            }
            let mut events = Vec::new();
            for chunk in &next {
                events.extend(self.teller.chunk(chunk));
                let Some(end) = &chunk.turn_end else { continue };
                self.is_committed |= end.snapshot_id.is_some();
                if let Some(added) = &end.added {
                    self.pending = pending_at_the_end(&self.agent, added, &self.name);
                }
            }
            if !events.is_empty() {
                return events;
            }
        }
        // Dropped at once, so that the thread is free when the client learns of the end.
        context.cancel();
        self.turn = None;
        self.phase = Phase::Over;
        let mut events = self.teller.give_up(Some("the run was stopped"));
        let details = metadata(&self.input.thread, None, Some(AgentFinishReason::Aborted));
        events.push(self.input.cancelled(details));
        events
    }

    fn ended(&mut self, output: &Result<AgentOutput>) -> Vec<Value> {
        self.turn = None;
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
                let details = metadata(&self.input.thread, None, Some(reason));
                (None, Some(error.to_wire(exposure_of(&self.context))), details)
            }
        };
        let is_cancelled = failure
            .as_ref()
            .is_some_and(|error| error.status == Some(Status::Cancelled));
        let failure = match reason {
            Some(AgentFinishReason::Detached) => Some(handed_off()),
            _ if is_cancelled && is_shutting_down() => Some(handed_off()),
            _ => failure,
        };
        let mut events = self
            .teller
            .give_up(failure.as_ref().map(|error| error.message.as_str()));
        // A turn that a limit stopped has failed for its user.
        let is_stopped = match &failure {
            Some(error) => error.status == Some(Status::Cancelled),
            None => reason == Some(AgentFinishReason::Aborted),
        };
        events.push(match failure {
            _ if is_stopped => self.input.cancelled(details),
            Some(error) => failed(&error, details),
            None => self.input.finished(&self.pending, details),
        });
        events
    }

    /// Returns the members that the end of a run has beside its outcome.
    fn details(&self, output: &AgentOutput) -> Map<String, Value> {
        let mut details = metadata(
            &self.input.thread,
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

/// Returns what the end of a run tells of its session.
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

fn pending_at_the_end(agent: &ServedAgent, added: &AddedMessages, name: &str) -> Vec<Pending> {
    let last = added
        .messages
        .last()
        .filter(|message| message.role() == Role::Model);
    let place = added.position + added.messages.len().saturating_sub(1);
    last.map(|last| pending_of(last, agent, |number| Place::new(place, number).call_id(name)))
        .unwrap_or_default()
}

/// Returns what a turn used, if its model told anything.
fn usage(total: &UsageTotal) -> Option<Value> {
    let counts = [
        ("inputTokens", total.input_tokens),
        ("outputTokens", total.output_tokens),
        ("totalTokens", total.input_tokens + total.output_tokens),
        ("reasoningTokens", total.thoughts_tokens),
        ("cachedInputTokens", total.cached_content_tokens),
    ];
    // A count that is unknown is left out, not 0.
    let told: Map<String, Value> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    (!told.is_empty()).then(|| json!([told]))
}
