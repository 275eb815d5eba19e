//! `/responses`: creating a response, and reading, cancelling and deleting it.

mod inputs;
mod response_encoder;
mod response_log;
mod stored;
mod watched_run;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Response as HttpResponse, StatusCode};
use everturn_agent::{ServerNote, SessionId};
use everturn_core::Context;
use everturn_server::{
    EncodedTurn, ServedAgent, ServedTurn, TurnPlan, exposure_of, json_response, turn_name,
};
use serde_json::{Map, Value, json};

use self::response_encoder::ResponseEncoder;
use self::response_log::ResponseLog;
pub(crate) use self::stored::{ResponseRequest, StoredResponse, not_found};
use crate::client_transcript::{TranscriptItem, field, flag, items, text, tools};
use crate::event::event_stream;
use crate::fault::Fault;
use crate::format::Format;
use crate::items::ItemStream;
use crate::plan::{Continuation, info_of, plan_response};
use crate::response::{Response, State, response_id};
use crate::response_events::ResponseEvents;
use crate::start_turn::start_turn;

/// The entry of a snapshot's note that holds the fields to return with the response.
const NOTES: &str = "openai";

/// The fields of a request that its response returns.
const ECHOED: [&str; 9] = [
    "instructions",
    "metadata",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "tool_choice",
    "tools",
    "truncation",
    "max_output_tokens",
];

/// The fields that are stored with the turn's snapshot.
const NOTED: [&str; 2] = ["metadata", "text"];

/// Handles a `POST`.
pub(crate) async fn create(
    agent: &ServedAgent,
    body: &Map<String, Value>,
    request: (&HeaderMap, &[u8]),
    context: Context,
) -> Result<HttpResponse<Body>, Fault> {
    check(body)?;
    let format = Format::of_response(body, agent)?;
    let streams = flag(body, "stream")?.unwrap_or(false);
    let background = flag(body, "background")?.unwrap_or(false);
    let store = flag(body, "store")?;
    let conversation = conversation(body)?;
    let previous = text(body, "previous_response_id")?.map(str::to_owned);
    if conversation.is_some() && previous.is_some() {
        return Err(Fault::wrong_value(
            "conversation",
            "'previous_response_id' and 'conversation' exclude each other.",
        ));
    }
    if background && (store == Some(false) || !agent.can_detach()) {
        return Err(Fault::unsupported(
            "background",
            "Work in the background needs an agent that keeps its sessions, and 'store' must not be false.",
        ));
    }
    let log = ResponseLog::of(agent, request, &context);
    if let Some(answer) = log.earlier_answer(agent, streams, &context).await? {
        return Ok(answer);
    }
    let tools = tools(body, false, agent)?;
    let mut transcript = items(field(body, "input").ok_or_else(|| Fault::missing("input"))?)?;
    if let Some(instructions) = text(body, "instructions")? {
        transcript.insert(0, TranscriptItem::Instructions(instructions.to_owned()));
    }
    let continuation = Continuation {
        previous,
        conversation: conversation.filter(|_| agent.has_store()),
        store,
    };
    let mut plan = plan_response(agent, transcript, continuation, tools, &context).await?;
    let mut echoed: Map<String, Value> = ECHOED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), field(body, name)?.clone())))
        .collect();
    if !agent.accepts_instructions() {
        // Ignored instructions are not part of the response.
        echoed.remove("instructions");
    }
    if let Some(format) = format {
        echoed.insert("text".into(), format.echo());
        plan.input.output_schema = Some(Arc::new(format.schema));
    }
    let context = with_note(context, &echoed, background);
    if background {
        return in_background(agent, plan, echoed, streams, &log, context).await;
    }
    let turn = start_turn(agent, &plan, streams, &context).await?;
    let events = response_events(agent, &plan, &turn, echoed);
    log.note(&events.response).await;
    let recording = log.recording(&events.response).await;
    let encoder = ResponseEncoder {
        agent: agent.clone(),
        events,
        recording,
        streams,
        context,
    };
    let turn = EncodedTurn::new(turn, encoder);
    if streams {
        return Ok(event_stream(turn.into_stream()));
    }
    let encoder = turn.run_to_end().await;
    Ok(json_response(StatusCode::OK, &encoder.events.object()))
}

/// Rejects unsupported parameters.
fn check(body: &Map<String, Value>) -> Result<(), Fault> {
    if field(body, "prompt").is_some() {
        return Err(Fault::invalid(
            "unsupported_parameter",
            "prompt",
            "The agent has its own prompt.",
        ));
    }
    check_metadata(body)
}

fn check_metadata(body: &Map<String, Value>) -> Result<(), Fault> {
    let metadata = match field(body, "metadata") {
        None => return Ok(()),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err(Fault::wrong_type("metadata", "an object of strings")),
    };
    let fits = |(name, value): (&String, &Value)| {
        name.chars().count() <= 64 && value.as_str().is_some_and(|text| text.chars().count() <= 512)
    };
    if metadata.len() > 16 || !metadata.iter().all(fits) {
        return Err(Fault::wrong_value(
            "metadata",
            "'metadata' holds at most 16 strings of 512 characters, under names of 64.",
        ));
    }
    Ok(())
}

fn conversation(body: &Map<String, Value>) -> Result<Option<SessionId>, Fault> {
    let id = match field(body, "conversation") {
        None => return Ok(None),
        Some(Value::String(id)) => id,
        Some(Value::Object(conversation)) => {
            return match text(conversation, "id")? {
                Some(id) => Ok(Some(SessionId::from(id))),
                None => Err(Fault::missing("conversation.id")),
            };
        }
        Some(_) => {
            return Err(Fault::wrong_type(
                "conversation",
                "a string or an object with an id",
            ));
        }
    };
    Ok(Some(SessionId::from(id.as_str())))
}

/// Adds a note with the fields to return later to the turn's snapshot.
fn with_note(context: Context, echoed: &Map<String, Value>, background: bool) -> Context {
    let stored = echoed.iter().filter(|(name, _)| NOTED.contains(&name.as_str()));
    let mut notes: Map<String, Value> = stored
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if background {
        notes.insert("background".into(), true.into());
    }
    if notes.is_empty() {
        return context;
    }
    context.with_extension(Arc::new(ServerNote(json!({ NOTES: notes }))))
}

fn response_events(
    agent: &ServedAgent,
    plan: &TurnPlan,
    turn: &ServedTurn,
    echoed: Map<String, Value>,
) -> ResponseEvents {
    let (id, name) = if plan.is_stored {
        (response_id(turn.name(), agent.name()), turn.name().to_owned())
    } else {
        let name = uuid::Uuid::new_v4().simple().to_string();
        (format!("resp_{name}"), name)
    };
    let response = Response {
        id,
        name,
        agent: agent.name().to_owned(),
        created_at: jiff::Timestamp::now().as_second(),
        completed_at: None,
        status: State::InProgress,
        background: false,
        is_stored: plan.is_stored,
        session: Some(turn.started().session_id.clone()).filter(|_| plan.is_stored),
        previous: plan
            .base
            .as_ref()
            .map(|base| response_id(&turn_name(base), agent.name())),
        echoed,
        usage: None,
    };
    ResponseEvents::new(response, ItemStream::new(info_of(plan, agent)))
}

async fn in_background(
    agent: &ServedAgent,
    plan: TurnPlan,
    echoed: Map<String, Value>,
    streams: bool,
    log: &ResponseLog,
    context: Context,
) -> Result<HttpResponse<Body>, Fault> {
    let mut connection = agent.action().connect_in(plan.init.clone(), &context);
    let _ = connection.send(plan.input.clone().detached()).await;
    let output = connection.output().await;
    let output = output.map_err(|error| Fault::of_error(&error, exposure_of(&context)))?;
    if let Some(error) = &output.error {
        return Err(Fault::failed_turn(error));
    }
    let snapshot = output.snapshot_id.ok_or_else(|| {
        Fault::of(
            StatusCode::INTERNAL_SERVER_ERROR,
            everturn_core::Status::Internal,
            "the run has no snapshot".into(),
        )
    })?;
    let stored = StoredResponse::find(agent, snapshot.as_str(), &context).await?;
    let mut response = stored.response();
    response.echoed.extend(echoed);
    response.background = true;
    log.note(&response).await;
    if streams {
        return Ok(watched_run::watch(agent, response, stored.info(), None, context));
    }
    response.status = match response.status {
        State::InProgress => State::Queued,
        other => other,
    };
    Ok(json_response(StatusCode::OK, &response.object(&[])))
}

/// Returns the body for a deleted response.
pub(crate) fn deleted(id: &str) -> Value {
    json!({ "id": id, "object": "response", "deleted": true })
}
