//! `/responses`: one turn, and what became of it.

mod inputs;
mod kept;
mod stored;
mod telling;
mod watching;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Response as HttpResponse, StatusCode};
use everturn_agent::{ServerNote, SessionId};
use everturn_core::Context;
use everturn_server::{ServedTurn, exposure_of, json_response, turn_name};
use serde_json::{Map, Value, json};

use self::kept::Kept;
pub(crate) use self::stored::{Afterwards, StoredResponse};
use self::telling::Telling;
use crate::agents::Agent;
use crate::fault::Fault;
use crate::format::Format;
use crate::ids::response_id;
use crate::items::Items;
use crate::narrator::Narrator;
use crate::plan::{Plan, Wanted, plan_response};
use crate::response::{Response, State};
use crate::said::{field, flag, items, text, tools};
use crate::turn::start;

/// The entry of a snapshot's note that holds what the client asked to be returned with the response.
const NOTES: &str = "openai";

/// The fields of a request that its response repeats.
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

/// The fields among them that are kept with the turn's snapshot.
const NOTED: [&str; 2] = ["metadata", "text"];

/// Answers a `POST`.
pub(crate) async fn create(
    agent: &Agent,
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
        return Err(Fault::invalid(
            "invalid_value",
            "conversation",
            "'previous_response_id' and 'conversation' exclude each other.",
        ));
    }
    if background && (store == Some(false) || !agent.can_detach()) {
        return Err(Fault::invalid(
            "unsupported_value",
            "background",
            "Work in the background needs an agent that keeps its sessions, and 'store' must not be false.",
        ));
    }
    let kept = Kept::of(agent, request, &context);
    if let Some(answer) = kept.answered_before(agent, streams, &context).await? {
        return Ok(answer);
    }
    let tools = tools(body, false, agent)?;
    let mut said = items(field(body, "input").ok_or_else(|| Fault::missing("input"))?)?;
    if let Some(instructions) = text(body, "instructions")? {
        said.insert(0, crate::said::Said::Instructions(instructions.to_owned()));
    }
    let wanted = Wanted {
        previous,
        conversation: conversation.filter(|_| agent.has_store()),
        store,
    };
    let mut plan = plan_response(agent, said, wanted, tools, &context).await?;
    let mut echoed: Map<String, Value> = ECHOED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), field(body, name)?.clone())))
        .collect();
    if !agent.accepts_instructions() {
        // They had no effect, and the response says so.
        echoed.remove("instructions");
    }
    if let Some(format) = format {
        echoed.insert("text".into(), format.echo());
        plan.input.output_schema = Some(Arc::new(format.schema));
    }
    let context = with_note(context, &echoed, background);
    if background {
        return in_background(agent, plan, echoed, streams, &kept, context).await;
    }
    let turn = start(agent, &plan, streams, &context).await?;
    let narrator = narrator(agent, &plan, &turn, echoed);
    kept.note(&narrator.response).await;
    let writer = kept.writer(&narrator.response).await;
    let telling = Telling::new(agent, turn, narrator, writer, context);
    if streams {
        return Ok(telling.streamed());
    }
    Ok(telling.whole().await)
}

/// Refuses what this surface cannot do.
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
        return Err(Fault::invalid(
            "invalid_value",
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

/// Adds a note to the turn's snapshot of what the response must return later.
fn with_note(context: Context, echoed: &Map<String, Value>, background: bool) -> Context {
    let kept = echoed.iter().filter(|(name, _)| NOTED.contains(&name.as_str()));
    let mut notes: Map<String, Value> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    if background {
        notes.insert("background".into(), true.into());
    }
    if notes.is_empty() {
        return context;
    }
    context.with_extension(Arc::new(ServerNote(json!({ NOTES: notes }))))
}

fn narrator(agent: &Agent, plan: &Plan, turn: &ServedTurn, echoed: Map<String, Value>) -> Narrator {
    let (id, name) = if plan.is_kept {
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
        is_stored: plan.is_kept,
        session: Some(turn.started().session_id.clone()).filter(|_| plan.is_kept),
        previous: plan
            .base
            .as_ref()
            .map(|base| response_id(&turn_name(base), agent.name())),
        echoed,
        usage: None,
    };
    Narrator::new(response, Items::new(plan.setting(agent)))
}

async fn in_background(
    agent: &Agent,
    plan: Plan,
    echoed: Map<String, Value>,
    streams: bool,
    kept: &Kept,
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
    kept.note(&response).await;
    if streams {
        return Ok(watching::watch(agent, response, stored.setting(), None, context));
    }
    response.status = match response.status {
        State::InProgress => State::Queued,
        other => other,
    };
    Ok(json_response(StatusCode::OK, &response.object(&[])))
}

/// Returns the answer for a response that is gone.
pub(crate) fn deleted(id: &str) -> Value {
    json!({ "id": id, "object": "response", "deleted": true })
}
