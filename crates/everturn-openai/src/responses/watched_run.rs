//! Background runs, encoded for the clients that watch them.

use axum::body::Body;
use axum::http::Response as HttpResponse;
use everturn_agent::{AgentOutput, AgentStreamChunk, SnapshotId, WatchRequest};
use everturn_core::{Context, Result, RuntimeError, Status};
use everturn_server::{EncodedTurn, EventEncoder, ServedAgent, exposure_of};

use super::stored::{StoredResponse, not_found};
use crate::event::{Event, event_stream};
use crate::fault::Fault;
use crate::items::{ItemStream, TurnInfo};
use crate::response::{Response, State, parse_response_id};
use crate::response_events::ResponseEvents;

/// Encodes a background run for one reader.
struct RunEncoder {
    agent: ServedAgent,
    snapshot: SnapshotId,
    events: ResponseEvents,
    /// The number of the last event that the client has.
    after: Option<u64>,
    context: Context,
}

/// Returns the events of a background run: those so far, and then each as it occurs. They are made from the
/// run's own stream, so every reader receives the same events.
pub(crate) fn watch(
    agent: &ServedAgent,
    response: Response,
    info: TurnInfo,
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
    let chunks = action.stream_in(request, &context);
    let encoder = RunEncoder {
        agent: agent.clone(),
        snapshot,
        events: ResponseEvents::new(response, ItemStream::new(info)),
        after,
        context,
    };
    event_stream(EncodedTurn::new(chunks, encoder).into_stream())
}

impl EventEncoder for RunEncoder {
    type Event = Event;

    fn start(&mut self) -> Vec<Event> {
        let events = self.events.start();
        self.unread(events)
    }

    fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Event> {
        let events = self.events.chunk(chunk);
        self.unread(events)
    }

    async fn end(&mut self, outcome: Result<AgentOutput>) -> Vec<Event> {
        let stored = match outcome {
            Ok(_) => StoredResponse::find(&self.agent, self.snapshot.as_str(), &self.context).await,
            Err(error) => Err(Fault::of_error(&error, exposure_of(&self.context))),
        };
        let mut events = Vec::new();
        match stored {
            Ok(stored) => {
                let steps = self.events.items().end(stored.from(), &stored.messages());
                events.extend(self.events.steps(&steps));
                self.events.response = Response {
                    echoed: self.events.response.echoed.clone(),
                    background: true,
                    ..stored.response()
                };
            }
            Err(fault) => {
                let steps = self.events.items().finish();
                events.extend(self.events.steps(&steps));
                self.events.response.status =
                    State::Failed(RuntimeError::new(Status::Unavailable, fault.message));
            }
        }
        events.push(self.events.end());
        self.unread(events)
    }
}

impl RunEncoder {
    /// Returns the events that the client does not have.
    fn unread(&self, mut events: Vec<Event>) -> Vec<Event> {
        events.retain(|event| Some(event.number) > self.after);
        events
    }
}
