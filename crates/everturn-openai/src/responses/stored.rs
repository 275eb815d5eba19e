//! Stored responses: the turn of a snapshot in the protocol's form.

use axum::body::Body;
use axum::http::Response as HttpResponse;
use everturn_agent::archive::DeleteRequest;
use everturn_agent::{Snapshot, SnapshotEvent, SnapshotId, SnapshotStatus, UsageTotal};
use everturn_ai::{Message, Role};
use everturn_core::{Context, RuntimeError, Status};
use everturn_server::{ServedAgent, WaitingCall, exposure_of, json_response, turn_name};
use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::inputs::{input_messages, inputs_of};
use super::response_log::read_again;
use super::watched_run::watch;
use super::{NOTED, NOTES};
use crate::fault::Fault;
use crate::items::{TurnInfo, items_of};
use crate::page::Page;
use crate::plan::pending;
use crate::response::{Response, State, response_id};

/// A snapshot as a response.
pub(crate) struct StoredResponse {
    agent: String,
    /// The name of the turn.
    name: String,
    snapshot: Snapshot,
    /// The position of the turn's first message.
    from: usize,
    info: TurnInfo,
    /// The usage of the conversation before the turn.
    used_before: UsageTotal,
    /// The snapshot that the turn continued.
    base: Option<SnapshotId>,
    /// The name of the turn before it.
    previous: Option<String>,
    /// The calls that waited for an answer before the turn.
    asked: Vec<WaitingCall>,
    /// The time without a heartbeat after which a background run is lost.
    lost_after: Option<SignedDuration>,
}

/// A request for an existing response.
pub(crate) enum ResponseRequest {
    Object,
    Stream { after: Option<u64> },
    Cancel,
    Delete,
    Inputs(Page),
}

impl StoredResponse {
    /// Finds the response of a turn.
    ///
    /// # Errors
    /// `404` for a missing turn and for a turn of another caller.
    pub(crate) async fn find(agent: &ServedAgent, turn: &str, context: &Context) -> Result<Self, Fault> {
        Self::find_with(agent, turn, &agent.respond_only(), context).await
    }

    /// As [`Self::find`], where these tools only accept a response.
    pub(crate) async fn find_with(
        agent: &ServedAgent,
        turn: &str,
        respond_only: &[String],
        context: &Context,
    ) -> Result<Self, Fault> {
        let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure_of(context));
        let snapshot = agent.turn(turn, context).await.map_err(failed)?;
        let snapshot = snapshot.ok_or_else(|| not_found(&response_id(turn, agent.name())))?;
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
        // A deleted snapshot still has its name.
        let base_id = base.as_ref().map(|base| base.snapshot_id.clone());
        let base_id = base_id.or_else(|| snapshot.parent_id.clone());
        let previous = base.as_ref().map(turn_name);
        let previous = previous.or_else(|| base_id.as_ref().map(ToString::to_string));
        let used_before = base.as_ref().and_then(Snapshot::usage).unwrap_or_default();
        let before = base.and_then(|base| base.state).map(|state| state.messages);
        let messages = snapshot.state.as_ref().map(|state| &state.messages);
        let length = messages.map_or(0, everturn_ai::History::len);
        let from = match (&before, messages) {
            (Some(before), None) => before.len(),
            (Some(before), Some(_)) => before.len().min(length),
            (None, _) if snapshot.parent_id.is_none() => 0,
            // The snapshot before it was deleted: the turn starts with the last user message.
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
        let asked = match (&before, &previous) {
            (Some(before), Some(name)) => pending(before, name, respond_only),
            _ => Vec::new(),
        };
        let prior = before.and_then(|before| Some(before.last()?.tool_request_parts().cloned().collect()));
        let is_json = notes(&snapshot).contains_key("text");
        Ok(Self {
            agent: agent.name().to_owned(),
            name: turn_name(&snapshot),
            snapshot,
            from,
            info: TurnInfo {
                prior: prior.unwrap_or_default(),
                respond_only: respond_only.to_vec(),
                of_client: Vec::new(),
                is_json,
            },
            used_before,
            base: base_id,
            previous,
            asked,
            lost_after: agent.lost_after().and_then(|time| time.try_into().ok()),
        })
    }

    /// Returns the information that the turn's items require.
    pub(crate) fn info(&self) -> TurnInfo {
        self.info.clone()
    }

    /// Returns the position of the turn's first message.
    pub(super) fn from(&self) -> usize {
        self.from
    }

    /// Returns the messages of the turn.
    pub(super) fn messages(&self) -> Vec<Message> {
        let state = self.snapshot.state.as_ref();
        state
            .map(|state| state.messages.since(self.from).cloned().collect())
            .unwrap_or_default()
    }

    fn is_background(&self) -> bool {
        notes(&self.snapshot).contains_key("background") || self.snapshot.heartbeat_at.is_some()
    }

    fn state(&self) -> State {
        let snapshot = &self.snapshot;
        match snapshot.status {
            SnapshotStatus::Expired if self.is_lost() => State::Failed(RuntimeError::new(
                Status::Unavailable,
                "the worker of the response was lost",
            )),
            SnapshotStatus::Pending | SnapshotStatus::Aborting | SnapshotStatus::Expired => State::InProgress,
            SnapshotStatus::Aborted if !is_limited(snapshot) => State::Cancelled,
            _ => State::ended(snapshot.finish_reason, snapshot.error.clone()),
        }
    }

    /// Returns whether no worker is expected to take over the run.
    fn is_lost(&self) -> bool {
        let (Some(beat), Some(time)) = (self.snapshot.heartbeat_at, self.lost_after) else {
            return false;
        };
        jiff::Timestamp::now().duration_since(beat) > time
    }

    /// Returns the response without its items.
    pub(crate) fn response(&self) -> Response {
        let snapshot = &self.snapshot;
        let mut echoed = notes(&self.snapshot);
        echoed.retain(|name, _| NOTED.contains(&name.as_str()));
        let status = self.state();
        let is_over = !matches!(status, State::Queued | State::InProgress);
        let ended = snapshot.updated_at.unwrap_or(snapshot.created_at);
        Response {
            id: response_id(&self.name, &self.agent),
            name: self.name.clone(),
            agent: self.agent.clone(),
            created_at: snapshot.created_at.as_second(),
            completed_at: is_over.then(|| ended.as_second()),
            status,
            background: self.is_background(),
            is_stored: true,
            session: snapshot.session_id.clone(),
            previous: self.previous.as_ref().map(|turn| response_id(turn, &self.agent)),
            echoed,
            usage: snapshot.usage().map(|total| total - self.used_before),
        }
    }

    /// Returns the whole object.
    pub(crate) fn object(&self) -> Value {
        let items = items_of(self.from, &self.messages(), &self.info);
        self.response().object(&items).to_value()
    }

    /// Returns the inputs of the turn, in order.
    fn inputs(&self) -> Vec<Value> {
        let name = self.name.as_str();
        let left = self.snapshot.inputs_left();
        if left.is_empty() {
            return inputs_of(self.from, &self.messages(), name, &self.asked);
        }
        // An active run has not committed its messages.
        let messages: Vec<Message> = left.iter().flat_map(input_messages).collect();
        inputs_of(self.from, &messages, name, &self.asked)
    }

    /// Returns the inputs of the turn and its items.
    pub(crate) fn items(&self) -> Vec<Value> {
        let response = self.response();
        let items = items_of(self.from, &self.messages(), &self.info);
        let told = items.iter().map(|item| response.item(item, "completed"));
        self.inputs().into_iter().chain(told).collect()
    }

    /// Returns the snapshot that the turn continued.
    pub(crate) fn base(&self) -> Option<SnapshotId> {
        self.base.clone()
    }

    /// Handles a request for the response.
    pub(crate) async fn answer(
        agent: &ServedAgent,
        turn: &str,
        asked: ResponseRequest,
        context: Context,
    ) -> Result<HttpResponse<Body>, Fault> {
        let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure_of(&context));
        let stored = Self::find(agent, turn, &context).await?;
        let id = &stored.snapshot.snapshot_id;
        let name = response_id(turn, agent.name());
        let is_over = !matches!(stored.state(), State::InProgress);
        let object = match asked {
            ResponseRequest::Object => stored.object(),
            ResponseRequest::Stream { after } => {
                if stored.is_background() {
                    return Ok(watch(agent, stored.response(), stored.info(), after, context));
                }
                return read_again(&name, after.map_or(0, |after| after.saturating_add(1)), &context).await;
            }
            ResponseRequest::Cancel => {
                if !stored.is_background() {
                    return Err(Fault::unsupported(
                        "response_id",
                        "Only responses in the background can be cancelled.",
                    ));
                }
                if is_over {
                    stored.object()
                } else {
                    agent.abort(id, &context).await.map_err(failed)?;
                    Self::find(agent, turn, &context).await?.object()
                }
            }
            ResponseRequest::Delete => {
                if !is_over {
                    return Err(Fault::invalid(
                        "failed_precondition",
                        "response_id",
                        "The response is still in progress: cancel it first.",
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
            ResponseRequest::Inputs(page) => page.of(stored.inputs()),
        };
        Ok(json_response(axum::http::StatusCode::OK, &object))
    }
}

/// Returns the note that was stored with the response.
fn notes(snapshot: &Snapshot) -> Map<String, Value> {
    let noted = snapshot.server_note().and_then(|note| note.get(NOTES));
    noted.and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Returns the fault of an id that names no response of this caller.
pub(crate) fn not_found(id: &str) -> Fault {
    Fault::not_found(
        "response_not_found",
        format!("Response with id '{id}' not found."),
    )
}

/// Returns whether a limit stopped the turn of an aborted snapshot, which is a failure for its caller.
fn is_limited(snapshot: &Snapshot) -> bool {
    let status = snapshot.error.as_ref().and_then(|error| error.status);
    status.is_some_and(|status| status != Status::Cancelled)
}
