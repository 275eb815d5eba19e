//! Responses that are stored: the turn of a snapshot, seen from this surface.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::Response as HttpResponse;
use everturn_agent::archive::DeleteRequest;
use everturn_agent::{Snapshot, SnapshotEvent, SnapshotId, SnapshotStatus, UsageTotal, WatchRequest};
use everturn_ai::{Message, Part, Role, metadata};
use everturn_core::{Context, Status, Streaming};
use futures::stream;
use serde_json::{Map, Value, json};

use super::NOTES;
use super::kept::read_again;
use super::telling::{Piece, told, within_heartbeat};
use crate::agents::ServedAgent;
use crate::event_stream::event_stream;
use crate::fault::Fault;
use crate::ids::{ItemKey, response_id};
use crate::items::{Items, Setting, items_of};
use crate::plan::exposure;
use crate::response::{Event, Narrator, Response, State};

/// A snapshot as a response.
pub(crate) struct StoredResponse {
    agent: String,
    snapshot: Snapshot,
    /// The place of the turn's first message.
    from: usize,
    setting: Setting,
    /// What the conversation had used before the turn.
    used_before: UsageTotal,
}

/// What is asked of a response after it was made.
pub(crate) enum Afterwards {
    Object,
    Stream {
        after: Option<u64>,
    },
    Cancel,
    Delete,
    Inputs {
        limit: usize,
        ascending: bool,
        after: Option<String>,
    },
}

impl StoredResponse {
    /// Finds the response of a snapshot.
    ///
    /// # Errors
    /// `404` alike for a snapshot that is missing and for one of another caller.
    pub(crate) async fn find(agent: &ServedAgent, id: &SnapshotId, context: &Context) -> Result<Self, Fault> {
        let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure(context));
        let snapshot = agent.snapshot(id, context).await.map_err(failed)?;
        let snapshot = snapshot.ok_or_else(|| not_found(&response_id(id, &agent.name)))?;
        // A snapshot in the middle of a turn belongs to the turn.
        let mut parent = snapshot.parent_id.clone();
        let mut base = None;
        while let Some(id) = parent.take() {
            base = agent.snapshot(&id, context).await.map_err(failed)?;
            if let Some(found) = base
                .as_ref()
                .filter(|found| found.event == Some(SnapshotEvent::RoundEnd))
            {
                parent.clone_from(&found.parent_id);
            }
        }
        let used_before = base.as_ref().and_then(Snapshot::usage).unwrap_or_default();
        let before = base.and_then(|base| base.state).map(|state| state.messages);
        let messages = snapshot.state.as_ref().map(|state| &state.messages);
        let length = messages.map_or(0, everturn_ai::History::len);
        let from = match (&before, messages) {
            (Some(before), _) => before.len().min(length),
            (None, _) if snapshot.parent_id.is_none() => 0,
            // The snapshot before it is gone: the turn began with the last words of the user.
            (None, Some(messages)) => {
                let since = messages
                    .iter()
                    .rev()
                    .take_while(|message| message.role() != Role::User)
                    .count();
                (length - since).saturating_sub(1)
            }
            (None, None) => 0,
        };
        let prior = before.and_then(|before| Some(before.last()?.tool_request_parts().cloned().collect()));
        Ok(Self {
            agent: agent.name.clone(),
            snapshot,
            from,
            setting: Setting {
                prior: prior.unwrap_or_default(),
                respond_only: agent.respond_only(),
                of_client: Vec::new(),
            },
            used_before,
        })
    }

    /// Returns what must be known of the turn to tell its items.
    pub(crate) fn setting(&self) -> Setting {
        self.setting.clone()
    }

    fn messages(&self) -> Vec<Message> {
        let state = self.snapshot.state.as_ref();
        state
            .map(|state| state.messages.since(self.from).cloned().collect())
            .unwrap_or_default()
    }

    fn notes(&self) -> Map<String, Value> {
        let messages = self.messages();
        let noted = messages
            .iter()
            .rev()
            .find_map(|message| message.metadata_entry(NOTES));
        noted.and_then(Value::as_object).cloned().unwrap_or_default()
    }

    fn is_background(&self) -> bool {
        self.notes().contains_key("background") || self.snapshot.heartbeat_at.is_some()
    }

    fn state(&self) -> State {
        let snapshot = &self.snapshot;
        match snapshot.status {
            SnapshotStatus::Pending | SnapshotStatus::Expired => State::InProgress,
            SnapshotStatus::Aborted => State::Cancelled,
            _ => State::ended(snapshot.finish_reason, snapshot.error.clone()),
        }
    }

    /// Returns the response without its items.
    pub(crate) fn response(&self) -> Response {
        let snapshot = &self.snapshot;
        let mut echoed = self.notes();
        echoed.retain(|name, _| name == "metadata");
        let status = self.state();
        let is_over = !matches!(status, State::Queued | State::InProgress);
        let ended = snapshot.updated_at.unwrap_or(snapshot.created_at);
        Response {
            id: response_id(&snapshot.snapshot_id, &self.agent),
            name: snapshot.snapshot_id.to_string(),
            agent: self.agent.clone(),
            created_at: snapshot.created_at.as_second(),
            completed_at: is_over.then(|| ended.as_second()),
            status,
            background: self.is_background(),
            is_stored: true,
            session: snapshot.session_id.clone(),
            previous: snapshot
                .parent_id
                .as_ref()
                .map(|parent| response_id(parent, &self.agent)),
            echoed,
            usage: snapshot.usage().map(|total| total - self.used_before),
        }
    }

    /// Returns the whole object.
    pub(crate) fn object(&self) -> Value {
        let items = items_of(self.from, &self.messages(), &self.setting);
        self.response().object(&items)
    }

    /// Returns the inputs of the turn, in order.
    fn inputs(&self) -> Vec<Value> {
        let name = self.snapshot.snapshot_id.as_str();
        let mut inputs = Vec::new();
        for (offset, message) in self.messages().iter().enumerate() {
            let place = self.from + offset;
            let key = |number| ItemKey {
                message: place,
                number,
            };
            match message.role() {
                Role::User => inputs.push(json!({
                    "id": key(0).id("msg", name),
                    "type": "message",
                    "role": "user",
                    "status": "completed",
                    "content": message.content().iter().filter_map(input_part).collect::<Vec<_>>(),
                })),
                Role::Tool => {
                    for (number, part) in message.content().iter().enumerate() {
                        let is_answer = part.metadata_entry(metadata::INTERRUPT_RESPONSE).is_some();
                        let Some(response) = part.as_tool_response().filter(|_| is_answer) else {
                            continue;
                        };
                        inputs.push(json!({
                            "id": key(number).id("fco", name),
                            "type": "function_call_output",
                            "call_id": response.reference,
                            "output": response.output.as_ref().map(crate::response::plain_text),
                            "status": "completed",
                        }));
                    }
                }
                _ => {}
            }
        }
        inputs
    }

    /// Returns a page of the inputs.
    fn page(&self, limit: usize, ascending: bool, after: Option<&str>) -> Value {
        let mut inputs = self.inputs();
        if !ascending {
            inputs.reverse();
        }
        let start = after
            .and_then(|after| inputs.iter().position(|item| item["id"] == after))
            .map_or(0, |index| index + 1);
        let rest = inputs.split_off(start);
        let has_more = rest.len() > limit;
        let data: Vec<Value> = rest.into_iter().take(limit).collect();
        let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
        json!({
            "object": "list",
            "first_id": id(data.first()),
            "last_id": id(data.last()),
            "has_more": has_more,
            "data": data,
        })
    }

    /// Answers what is asked of the response.
    pub(crate) async fn answer(
        agent: &ServedAgent,
        id: &SnapshotId,
        asked: Afterwards,
        context: Context,
    ) -> Result<HttpResponse<Body>, Fault> {
        let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure(&context));
        let stored = Self::find(agent, id, &context).await?;
        let name = response_id(id, &agent.name);
        let is_over = !matches!(stored.state(), State::InProgress);
        let object = match asked {
            Afterwards::Object => stored.object(),
            Afterwards::Stream { after } => {
                if stored.is_background() {
                    return Ok(watch(agent, stored.response(), stored.setting(), after, context));
                }
                return read_again(&name, after.map_or(0, |after| after.saturating_add(1)), &context).await;
            }
            Afterwards::Cancel => {
                if !stored.is_background() {
                    return Err(Fault::invalid(
                        "unsupported_value",
                        "response_id",
                        "Only responses in the background can be cancelled.",
                    ));
                }
                if is_over {
                    stored.object()
                } else {
                    agent.abort(id, &context).await.map_err(failed)?;
                    Self::find(agent, id, &context).await?.object()
                }
            }
            Afterwards::Delete => {
                if !is_over {
                    return Err(Fault::invalid(
                        "failed_precondition",
                        "response_id",
                        "The response is still under way: cancel it first.",
                    ));
                }
                let request = DeleteRequest {
                    snapshot_id: Some(id.clone()),
                    session_id: None,
                    branch: false,
                };
                agent.delete(request, &context).await.map_err(failed)?;
                super::deleted(&name)
            }
            Afterwards::Inputs {
                limit,
                ascending,
                after,
            } => stored.page(limit, ascending, after.as_deref()),
        };
        Ok(crate::fault::json_response(axum::http::StatusCode::OK, &object))
    }
}

/// Returns the fault of an id that names no response of this caller.
pub(crate) fn not_found(id: &str) -> Fault {
    Fault::not_found(
        "response_not_found",
        format!("Response with id '{id}' not found."),
    )
}

fn input_part(part: &Part) -> Option<Value> {
    if let Some(text) = part.as_text() {
        return Some(json!({ "type": "input_text", "text": text }));
    }
    let media = part.as_media()?;
    let is_image = media.mime_type().is_none_or(|kind| kind.starts_with("image/"));
    Some(if is_image {
        json!({ "type": "input_image", "image_url": media.url, "detail": "auto" })
    } else {
        json!({ "type": "input_file", "file_url": media.url })
    })
}

/// A background run that is being told.
struct Watching {
    agent: ServedAgent,
    snapshot: SnapshotId,
    chunks: Streaming<everturn_agent::AgentOutput, everturn_agent::AgentStreamChunk>,
    narrator: Narrator,
    /// The number of the last event that the client has.
    after: Option<u64>,
    context: Context,
    phase: Phase,
}

enum Phase {
    Beginning,
    Running,
    Over,
}

/// Returns the events of a background run: those so far, and then as they come. They are made from the run's own stream, so
/// every reader gets the same ones.
pub(crate) fn watch(
    agent: &ServedAgent,
    response: Response,
    setting: Setting,
    after: Option<u64>,
    context: Context,
) -> HttpResponse<Body> {
    let (Some(action), Some((snapshot, _))) = (agent.watch(), crate::ids::parse_response_id(&response.id))
    else {
        return not_found(&response.id).respond();
    };
    let request = WatchRequest {
        snapshot_id: snapshot.clone(),
    };
    let response = Response {
        status: State::InProgress,
        completed_at: None,
        usage: None,
        ..response
    };
    let watching = Watching {
        agent: agent.clone(),
        snapshot,
        chunks: action.stream_in(request, &context),
        narrator: Narrator::new(response, Items::new(setting)),
        after,
        context,
        phase: Phase::Beginning,
    };
    let events = stream::unfold(watching, |mut watching| async move {
        let piece = watching.next().await?;
        Some((Ok::<_, Infallible>(piece.bytes()), watching))
    });
    event_stream(Body::from_stream(events))
}

impl Watching {
    async fn next(&mut self) -> Option<Piece> {
        loop {
            let events = match self.phase {
                Phase::Over => return None,
                Phase::Beginning => {
                    self.phase = Phase::Running;
                    self.narrator.begin()
                }
                Phase::Running => match within_heartbeat(self.chunks.next()).await {
                    Err(silence) => return Some(silence),
                    Ok(Some(chunk)) => told(&mut self.narrator, &chunk),
                    Ok(None) => {
                        self.phase = Phase::Over;
                        self.ended().await
                    }
                },
            };
            let after = self.after;
            let is_new = |event: &Event| Some(event.number) > after;
            let new: Vec<Event> = events.into_iter().filter(is_new).collect();
            if !new.is_empty() {
                return Some(Piece::Events(new));
            }
        }
    }

    async fn ended(&mut self) -> Vec<Event> {
        let outcome = self.chunks.output().await;
        let stored = match outcome {
            Ok(_) => StoredResponse::find(&self.agent, &self.snapshot, &self.context).await,
            Err(error) => Err(Fault::of_error(&error, exposure(&self.context))),
        };
        let mut events = Vec::new();
        match stored {
            Ok(stored) => {
                let steps = self.narrator.items().end(stored.from, &stored.messages());
                events.extend(self.narrator.steps(&steps));
                let response = stored.response();
                self.narrator.response = Response {
                    echoed: self.narrator.response.echoed.clone(),
                    background: true,
                    ..response
                };
            }
            Err(fault) => {
                let steps = self.narrator.items().give_up();
                events.extend(self.narrator.steps(&steps));
                self.narrator.response.status = State::Failed(everturn_core::RuntimeError {
                    status: Some(Status::Unavailable),
                    message: fault.message,
                    details: None,
                });
            }
        }
        events.push(self.narrator.end());
        events
    }
}
