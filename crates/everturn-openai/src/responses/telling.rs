//! Telling a turn as a response, to its client and to the log.

use axum::body::Body;
use axum::http::{Response as HttpResponse, StatusCode};
use everturn_agent::{AgentOutput, SnapshotId};
use everturn_core::stream_log::{JsonText, StreamWriter};
use everturn_core::{Context, Result};
use everturn_server::{ServedTurn, exposure_of, json_response};
use futures::stream;
use serde_json::Value;

use crate::agents::Agent;
use crate::event::{Event, lines};
use crate::event_stream::event_stream;
use crate::narrator::Narrator;
use crate::response::State;

/// A turn that is being told.
pub(super) struct Telling {
    agent: Agent,
    turn: ServedTurn,
    narrator: Narrator,
    /// Keeps the events for clients that read them again; `None` if nobody can.
    writer: Option<Box<dyn StreamWriter>>,
    context: Context,
    phase: Phase,
}

enum Phase {
    Beginning,
    Running,
    Over,
}

impl Telling {
    pub(super) fn new(
        agent: &Agent,
        turn: ServedTurn,
        narrator: Narrator,
        writer: Option<Box<dyn StreamWriter>>,
        context: Context,
    ) -> Self {
        Self {
            agent: agent.clone(),
            turn,
            narrator,
            writer,
            context,
            phase: Phase::Beginning,
        }
    }

    /// Tells the turn to its end and answers with the whole response.
    pub(super) async fn whole(mut self) -> HttpResponse<Body> {
        if self.writer.is_some() {
            while self.next().await.is_some() {}
            return json_response(StatusCode::OK, &self.narrator.object());
        }
        // Nobody hears the events.
        loop {
            let chunks = self.turn.next().await;
            if chunks.is_empty() {
                break;
            }
            for chunk in &chunks {
                self.narrator.items().chunk(chunk);
            }
        }
        let output = self.turn.output().await;
        self.narrator.items().give_up();
        self.settle(output).await;
        json_response(StatusCode::OK, &self.narrator.object())
    }

    /// Returns the response whose body is the turn as events. Dropping the body cancels the turn.
    pub(super) fn streamed(self) -> HttpResponse<Body> {
        // Boxed, because the stream moves it for every event.
        let events = stream::unfold(Box::new(self), |mut telling| async move {
            let events = telling.next().await?;
            Some((lines(&events), telling))
        });
        event_stream(events)
    }

    /// Waits for the next events; `None` after the last.
    async fn next(&mut self) -> Option<Vec<Event>> {
        let events = match self.phase {
            Phase::Over => return None,
            Phase::Beginning => {
                self.phase = Phase::Running;
                self.narrator.begin()
            }
            Phase::Running => loop {
                let chunks = self.turn.next().await;
                if chunks.is_empty() {
                    let output = self.turn.output().await;
                    self.phase = Phase::Over;
                    break self.ended(output).await;
                }
                let told = |chunk| self.narrator.chunk(chunk);
                let events: Vec<Event> = chunks.iter().flat_map(told).collect();
                if !events.is_empty() {
                    break events;
                }
            },
        };
        self.keep(&events).await;
        Some(events)
    }

    async fn ended(&mut self, output: Result<AgentOutput>) -> Vec<Event> {
        let steps = self.narrator.items().give_up();
        let mut events = self.narrator.steps(&steps);
        self.settle(output).await;
        events.push(self.narrator.end());
        events
    }

    /// Gives the response its final state.
    async fn settle(&mut self, output: Result<AgentOutput>) {
        let is_found = self.is_found(&output).await;
        let response = &mut self.narrator.response;
        response.status = match output {
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

    /// Returns whether the response can be found again. A turn that failed left no snapshot, and one that reached the snapshot
    /// of an equal turn wrote none.
    async fn is_found(&mut self, output: &Result<AgentOutput>) -> bool {
        let Ok(AgentOutput {
            error: None,
            snapshot_id,
            ..
        }) = output
        else {
            return false;
        };
        if !snapshot_id.as_ref().is_some_and(SnapshotId::is_content_addressed) {
            return true;
        }
        let found = self.agent.turn(&self.narrator.response.name, &self.context);
        found.await.is_ok_and(|found| found.is_some())
    }

    /// Keeps events in the log. A log that is full ends the keeping, not the turn.
    async fn keep(&mut self, events: &[Event]) {
        let Some(writer) = &self.writer else { return };
        for event in events {
            if writer.append(event.data.clone()).await.is_err() {
                self.writer = None;
                return;
            }
        }
        if matches!(self.phase, Phase::Over)
            && let Some(writer) = self.writer.take()
            && let Ok(end) = JsonText::of(&Value::Null)
        {
            // Whoever reads the stream again has every event; only the mark of its end is lost.
            let _ = writer.finish(Ok(end)).await;
        }
    }
}
