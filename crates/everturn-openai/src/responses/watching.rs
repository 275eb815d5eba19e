//! Background runs as they are told to clients that watch them.

use axum::body::Body;
use axum::http::Response as HttpResponse;
use everturn_agent::{AgentOutput, AgentStreamChunk, SnapshotId, WatchRequest};
use everturn_core::{Context, RuntimeError, Status, Streaming};
use everturn_server::exposure_of;
use futures::stream;

use super::stored::{StoredResponse, not_found};
use crate::agents::Agent;
use crate::event::{Event, lines};
use crate::event_stream::event_stream;
use crate::fault::Fault;
use crate::ids::parse_response_id;
use crate::items::{Items, Setting};
use crate::narrator::Narrator;
use crate::response::{Response, State};

/// A background run that is being told.
struct Watching {
    agent: Agent,
    snapshot: SnapshotId,
    chunks: Streaming<AgentOutput, AgentStreamChunk>,
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
    agent: &Agent,
    response: Response,
    setting: Setting,
    after: Option<u64>,
    context: Context,
) -> HttpResponse<Body> {
    let (Some(action), Some((run, _))) = (agent.watch(), parse_response_id(&response.id)) else {
        return not_found(&response.id).respond();
    };
    // Background runs are named after their snapshot, whatever the agent's other snapshots are named after.
    let snapshot = SnapshotId::from(run);
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
        let events = watching.next().await?;
        Some((lines(&events), watching))
    });
    event_stream(events)
}

impl Watching {
    /// Waits for the next events; `None` after the last.
    async fn next(&mut self) -> Option<Vec<Event>> {
        loop {
            let events = match self.phase {
                Phase::Over => return None,
                Phase::Beginning => {
                    self.phase = Phase::Running;
                    self.narrator.begin()
                }
                Phase::Running => {
                    if let Some(chunk) = self.chunks.next().await {
                        self.narrator.chunk(&chunk)
                    } else {
                        self.phase = Phase::Over;
                        self.ended().await
                    }
                }
            };
            let after = self.after;
            let is_new = |event: &Event| Some(event.number) > after;
            let new: Vec<Event> = events.into_iter().filter(is_new).collect();
            if !new.is_empty() {
                return Some(new);
            }
        }
    }

    async fn ended(&mut self) -> Vec<Event> {
        let outcome = self.chunks.output().await;
        let stored = match outcome {
            Ok(_) => StoredResponse::find(&self.agent, self.snapshot.as_str(), &self.context).await,
            Err(error) => Err(Fault::of_error(&error, exposure_of(&self.context))),
        };
        let mut events = Vec::new();
        match stored {
            Ok(stored) => {
                let steps = self.narrator.items().end(stored.from(), &stored.messages());
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
                self.narrator.response.status = State::Failed(RuntimeError {
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
