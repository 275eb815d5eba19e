//! Connecting to a thread: its messages and state, followed by the events of its active background run. No
//! turn is run.

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use everturn_agent::{AgentInput, AgentOutput, AgentStreamChunk, SessionId, Snapshot, WatchRequest};
use everturn_core::offload::{is_heavy, offload};
use everturn_core::stream_log::JsonText;
use everturn_core::{Context, Error, Result};
use everturn_server::{EncodedTurn, EventEncoder, ServedAgent, exposure_of, messages_of};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::answers::pending;
use crate::encoder::{TurnEncoder, TurnInfo};
use crate::input::RunInput;
use crate::plan::{is_active, name_of};
use crate::run::{Run, delegates, event_stream, failed, metadata};
use crate::stored_thread::{StoredThread, user_id, user_message};

/// Responds with the events of a thread.
///
/// # Errors
/// `INVALID_ARGUMENT` for an invalid body; the store's own errors.
pub(crate) async fn connect(agent: &ServedAgent, body: &Bytes, context: Context) -> Result<Response<Body>> {
    let input = RunInput::read(body).await?;
    let run = Run::of(&input);
    let tip = agent.tip(&input.session(), &context).await?;
    let mut first = vec![run.started()];
    let Some(tip) = tip else {
        first.push(run.finished(agent, &[], Map::new()));
        return Ok(events(futures::stream::iter([first])));
    };
    let committed = committed(agent, &tip, &context).await?;
    let inputs = uncommitted_inputs(&tip, committed.as_ref());
    first.extend(thread_events(agent, committed.as_ref(), inputs, &context).await?);
    if !is_active(&tip) {
        first.push(finished(agent, &run, &tip));
        return Ok(events(futures::stream::iter([first])));
    }
    let watching = watched(agent.clone(), run, tip, context)?;
    Ok(events(futures::stream::iter([first]).chain(watching)))
}

fn events(events: impl futures::Stream<Item = Vec<Value>> + Send + 'static) -> Response<Body> {
    let texts = events.then(|events| async move {
        let is_heavy = events.iter().any(is_heavy);
        let print = move || {
            let texts = events.iter().filter_map(|event| JsonText::of(event).ok());
            texts.collect()
        };
        if is_heavy { offload(print).await } else { print() }
    });
    event_stream(texts)
}

/// Returns the last committed snapshot before a background run: the run's own if it has ended.
async fn committed(agent: &ServedAgent, tip: &Snapshot, context: &Context) -> Result<Option<Snapshot>> {
    let mut candidate = Some(tip.clone());
    while let Some(snapshot) = candidate {
        if snapshot.state.is_some() && !is_active(&snapshot) {
            return Ok(Some(snapshot));
        }
        candidate = match &snapshot.parent_id {
            Some(parent) => agent.snapshot(parent, context).await?,
            None => None,
        };
    }
    Ok(None)
}

/// Returns the user's messages that a background run processes and has not committed.
fn uncommitted_inputs(tip: &Snapshot, committed: Option<&Snapshot>) -> Vec<Value> {
    if !is_active(tip) {
        return Vec::new();
    }
    let before = committed.map_or(0, |committed| messages_of(committed).len());
    let inputs = tip.inputs_left();
    let messages = inputs.iter().flat_map(AgentInput::messages).enumerate();
    messages
        .map(|(number, message)| user_message(message, &user_id(message, &name_of(tip), before + number)))
        .collect()
}

/// Returns the events with a snapshot's messages and state, and with later inputs.
async fn thread_events(
    agent: &ServedAgent,
    snapshot: Option<&Snapshot>,
    inputs: Vec<Value>,
    context: &Context,
) -> Result<Vec<Value>> {
    let mut messages = match snapshot {
        Some(snapshot) => {
            let record = StoredThread::read(agent, snapshot, context).await?;
            offload(move || record.messages()).await
        }
        None => Vec::new(),
    };
    messages.extend(inputs);
    let mut events = vec![json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages })];
    let state = snapshot.and_then(|snapshot| snapshot.state.as_ref());
    let custom = state.and_then(|state| state.custom.as_deref());
    if let Some(custom) = custom.filter(|custom| !custom.is_null()) {
        events.push(json!({ "type": "STATE_SNAPSHOT", "snapshot": custom }));
    }
    Ok(events)
}

/// Returns the additional fields at the end of a run.
fn details(tip: &Snapshot) -> Map<String, Value> {
    let session = tip.session_id.as_ref().map(SessionId::as_str);
    metadata(
        session.unwrap_or_default(),
        Some(&tip.snapshot_id),
        tip.finish_reason,
    )
}

fn finished(agent: &ServedAgent, run: &Run, tip: &Snapshot) -> Value {
    let pending = pending(messages_of(tip), &name_of(tip), agent);
    run.finished(agent, &pending, details(tip))
}

/// Returns the events of a background run, followed by the thread's final messages and state.
fn watched(
    agent: ServedAgent,
    run: Run,
    tip: Snapshot,
    context: Context,
) -> Result<impl futures::Stream<Item = Vec<Value>> + Send + 'static> {
    let watch = agent
        .watch()
        .ok_or_else(|| Error::not_found("the agent has no background runs"))?;
    let request = WatchRequest {
        snapshot_id: tip.snapshot_id.clone(),
    };
    let chunks = watch.stream_in(request, &context);
    let turn = TurnInfo {
        name: tip.snapshot_id.to_string(),
        delegates: delegates(&agent),
        ..TurnInfo::default()
    };
    let encoder = WatchedRunEncoder {
        turn: TurnEncoder::new(turn),
        agent,
        run,
        tip,
        context,
    };
    Ok(EncodedTurn::new(chunks, encoder).into_stream())
}

/// Encodes a background run for a client that watches it.
struct WatchedRunEncoder {
    turn: TurnEncoder,
    agent: ServedAgent,
    run: Run,
    tip: Snapshot,
    context: Context,
}

impl EventEncoder for WatchedRunEncoder {
    type Event = Value;

    fn start(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Value> {
        self.turn.chunk(chunk)
    }

    async fn end(&mut self, outcome: Result<AgentOutput>) -> Vec<Value> {
        let mut events = self.turn.close_all(None);
        let rest = match outcome {
            Ok(_) => end(&self.agent, &self.run, &self.tip, &self.context).await,
            Err(error) => Err(error),
        };
        events.extend(
            rest.unwrap_or_else(|error| vec![failed(&error.to_wire(exposure_of(&self.context)), Map::new())]),
        );
        events
    }
}

/// Returns the thread at the end of a background run. The client has the agent's messages without the user's
/// before them, so its messages are replaced.
async fn end(agent: &ServedAgent, run: &Run, tip: &Snapshot, context: &Context) -> Result<Vec<Value>> {
    let missing = || Error::not_found("the background run is gone");
    let snapshot = agent
        .snapshot(&tip.snapshot_id, context)
        .await?
        .ok_or_else(missing)?;
    let mut events = Vec::new();
    if let Some(committed) = committed(agent, &snapshot, context).await? {
        events.push(json!({ "type": "MESSAGES_SNAPSHOT", "messages": [] }));
        events.extend(thread_events(agent, Some(&committed), Vec::new(), context).await?);
    }
    events.push(match &snapshot.error {
        Some(error) => failed(error, details(&snapshot)),
        None => finished(agent, run, &snapshot),
    });
    Ok(events)
}
