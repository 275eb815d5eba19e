//! A thread as it is: its messages and state, and then whatever is under way. Nothing is run.

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use everturn_agent::{AgentInput, SessionId, Snapshot, WatchRequest};
use everturn_core::offload::{is_heavy, offload};
use everturn_core::stream_log::JsonText;
use everturn_core::{Context, Error, Result};
use everturn_server::{ServedAgent, exposure_of};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::answers::pending;
use crate::event_stream::event_stream;
use crate::input::RunInput;
use crate::plan::{is_under_way, messages_of, name_of};
use crate::record::{Record, user_id, user_message};
use crate::run::{Run, delegates, failed, metadata};
use crate::teller::{Setting, Teller};

/// Answers with a thread.
///
/// # Errors
/// `INVALID_ARGUMENT` for a body that is no input of a run; the store's own errors.
pub(crate) async fn connect(agent: &ServedAgent, body: &Bytes, context: Context) -> Result<Response<Body>> {
    let input = RunInput::read(body).await?;
    let run = Run::of(&input);
    let tip = agent.tip(&input.session(), &context).await?;
    let mut first = vec![run.started()];
    let Some(tip) = tip else {
        first.push(run.finished(&[], Map::new()));
        return Ok(events(futures::stream::iter([first])));
    };
    let committed = committed(agent, &tip, &context).await?;
    let said = said_to(&tip, committed.as_ref());
    first.extend(told(agent, committed.as_ref(), said, &context).await?);
    if !is_under_way(&tip) {
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

/// Returns the snapshot that holds what was said before a background run: the run's own if it is over.
async fn committed(agent: &ServedAgent, tip: &Snapshot, context: &Context) -> Result<Option<Snapshot>> {
    let mut candidate = Some(tip.clone());
    while let Some(snapshot) = candidate {
        if snapshot.state.is_some() && !is_under_way(&snapshot) {
            return Ok(Some(snapshot));
        }
        candidate = match &snapshot.parent_id {
            Some(parent) => agent.snapshot(parent, context).await?,
            None => None,
        };
    }
    Ok(None)
}

/// Returns the messages of the user on which a background run works, which are not on record yet.
fn said_to(tip: &Snapshot, committed: Option<&Snapshot>) -> Vec<Value> {
    if !is_under_way(tip) {
        return Vec::new();
    }
    let before = committed.map_or(0, |committed| messages_of(committed).len());
    let inputs = tip.inputs_left();
    let said = inputs.iter().flat_map(AgentInput::messages).enumerate();
    said.map(|(number, message)| user_message(message, &user_id(message, &name_of(tip), before + number)))
        .collect()
}

/// Returns the events that tell a snapshot's messages, with those that were said since, and its state.
async fn told(
    agent: &ServedAgent,
    snapshot: Option<&Snapshot>,
    said: Vec<Value>,
    context: &Context,
) -> Result<Vec<Value>> {
    let mut messages = match snapshot {
        Some(snapshot) => {
            let record = Record::read(agent, snapshot, context).await?;
            offload(move || record.messages()).await
        }
        None => Vec::new(),
    };
    messages.extend(said);
    let mut events = vec![json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages })];
    let state = snapshot.and_then(|snapshot| snapshot.state.as_ref());
    let custom = state.and_then(|state| state.custom.as_deref());
    if let Some(custom) = custom.filter(|custom| !custom.is_null()) {
        events.push(json!({ "type": "STATE_SNAPSHOT", "snapshot": custom }));
    }
    Ok(events)
}

/// Returns what the end tells of a thread.
fn details(tip: &Snapshot) -> Map<String, Value> {
    let session = tip.session_id.as_ref().map(SessionId::as_str);
    metadata(
        session.unwrap_or_default(),
        Some(&tip.snapshot_id),
        tip.finish_reason,
    )
}

fn finished(agent: &ServedAgent, run: &Run, tip: &Snapshot) -> Value {
    run.finished(&pending(messages_of(tip), &name_of(tip), agent), details(tip))
}

/// Returns the events of a background run, and at its end the thread as it is then.
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
    let setting = Setting {
        name: tip.snapshot_id.to_string(),
        delegates: delegates(&agent),
        ..Setting::default()
    };
    let watching = (Some((chunks, Teller::new(setting))), agent, run, tip, context);
    Ok(futures::stream::unfold(
        watching,
        |(state, agent, run, tip, context)| async move {
            let (mut chunks, mut teller) = state?;
            loop {
                let Some(chunk) = chunks.next().await else {
                    let outcome = chunks.output().await;
                    let mut events = teller.give_up(None);
                    events.extend(
                        match outcome {
                            Ok(_) => end(&agent, &run, &tip, &context).await,
                            Err(error) => Err(error),
                        }
                        .unwrap_or_else(|error| {
                            vec![failed(&error.to_wire(exposure_of(&context)), Map::new())]
                        }),
                    );
                    return Some((events, (None, agent, run, tip, context)));
                };
                let events = teller.chunk(&chunk);
                if !events.is_empty() {
                    return Some((events, (Some((chunks, teller)), agent, run, tip, context)));
                }
            }
        },
    ))
}

/// Returns the thread as a background run left it. The client has the agent's messages and not the user's before them, so
/// it begins anew.
async fn end(agent: &ServedAgent, run: &Run, tip: &Snapshot, context: &Context) -> Result<Vec<Value>> {
    let missing = || Error::not_found("the background run is gone");
    let snapshot = agent
        .snapshot(&tip.snapshot_id, context)
        .await?
        .ok_or_else(missing)?;
    let mut events = Vec::new();
    if let Some(committed) = committed(agent, &snapshot, context).await? {
        events.push(json!({ "type": "MESSAGES_SNAPSHOT", "messages": [] }));
        events.extend(told(agent, Some(&committed), Vec::new(), context).await?);
    }
    events.push(match &snapshot.error {
        Some(error) => failed(error, details(&snapshot)),
        None => finished(agent, run, &snapshot),
    });
    Ok(events)
}
