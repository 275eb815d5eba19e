//! Encoding a turn as a response, for its client and for the stream log.

use everturn_agent::{AgentOutput, AgentStreamChunk, SnapshotId};
use everturn_core::stream_log::{JsonText, StreamWriter};
use everturn_core::{Context, Result};
use everturn_server::{EventEncoder, exposure_of};
use serde_json::Value;

use crate::agents::Agent;
use crate::event::Event;
use crate::response::State;
use crate::response_events::ResponseEvents;

/// Encodes the turn of a response.
pub(super) struct ResponseEncoder {
    pub(super) agent: Agent,
    pub(super) events: ResponseEvents,
    /// Stores the events for clients that read them again; `None` if no client can.
    pub(super) writer: Option<Box<dyn StreamWriter>>,
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

    /// Writes events to the log. A full log ends the recording and not the turn.
    async fn record(&mut self, events: &[Event], is_end: bool) {
        let Some(writer) = &self.writer else { return };
        for event in events {
            if writer.append(event.data.clone()).await.is_err() {
                self.writer = None;
                return;
            }
        }
        if is_end
            && let Some(writer) = self.writer.take()
            && let Ok(end) = JsonText::of(&Value::Null)
        {
            // Later readers have every event; only the mark of the end is lost.
            let _ = writer.finish(Ok(end)).await;
        }
    }
}

impl ResponseEncoder {
    fn has_reader(&self) -> bool {
        self.streams || self.writer.is_some()
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
