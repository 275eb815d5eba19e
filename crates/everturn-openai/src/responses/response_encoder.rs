//! Encoding a turn as a response, for its client and for the stream log.

use everturn_agent::{AgentOutput, AgentStreamChunk, SnapshotId};
use everturn_core::{Context, Result};
use everturn_server::{EventEncoder, RecordedStream, ServedAgent, exposure_of};
use serde_json::Value;

use crate::event::Event;
use crate::response::State;
use crate::response_events::ResponseEvents;

/// Encodes the turn of a response.
pub(super) struct ResponseEncoder {
    pub(super) agent: ServedAgent,
    pub(super) events: ResponseEvents,
    /// Stores the events for clients that read them again.
    pub(super) recording: RecordedStream,
    /// Whether the client receives the events.
    pub(super) streams: bool,
    pub(super) context: Context,
}

impl EventEncoder for ResponseEncoder {
    type Event = Event;

    fn start(&mut self) -> Vec<Event> {
        if self.has_reader() {
            self.events.start()
        } else {
            Vec::new()
        }
    }

    fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Event> {
        if self.has_reader() {
            return self.events.chunk(chunk);
        }
        self.events.items().chunk(chunk);
        Vec::new()
    }

    async fn end(&mut self, outcome: Result<AgentOutput>) -> Vec<Event> {
        let steps = self.events.items().finish();
        if !self.has_reader() {
            self.complete(outcome).await;
            return Vec::new();
        }
        let mut events = self.events.steps(&steps);
        self.complete(outcome).await;
        events.push(self.events.end());
        events
    }

    async fn record(&mut self, events: &[Event], is_end: bool) {
        let texts = events.iter().map(|event| event.data.clone());
        self.recording.append(texts).await;
        if is_end {
            self.recording.finish(&Value::Null).await;
        }
    }
}

impl ResponseEncoder {
    fn has_reader(&self) -> bool {
        self.streams || self.recording.is_recorded()
    }

    /// Sets the final state of the response.
    async fn complete(&mut self, outcome: Result<AgentOutput>) {
        let is_found = self.is_found(&outcome).await;
        let response = &mut self.events.response;
        response.status = match outcome {
            Ok(output) => {
                response.usage = output.usage;
                response.is_stored &= is_found;
                State::ended(output.finish_reason, output.error)
            }
            Err(error) => {
                response.is_stored = false;
                State::Failed(error.to_wire(exposure_of(&self.context)))
            }
        };
        response.completed_at = Some(jiff::Timestamp::now().as_second());
    }

    /// Returns whether later requests find the response. A failed turn leaves no snapshot, and a turn that
    /// reaches the snapshot of an equal turn writes none.
    async fn is_found(&mut self, outcome: &Result<AgentOutput>) -> bool {
        let Ok(AgentOutput {
            error: None,
            snapshot_id,
            ..
        }) = outcome
        else {
            return false;
        };
        if !snapshot_id.as_ref().is_some_and(SnapshotId::is_content_addressed) {
            return true;
        }
        let found = self.agent.turn(&self.events.response.name, &self.context);
        found.await.is_ok_and(|found| found.is_some())
    }
}
