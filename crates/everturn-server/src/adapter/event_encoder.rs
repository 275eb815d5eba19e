//! Encoding turns as the events of a protocol.
//!
//! [`EncodedTurn`] is the driver of all adapters: it passes chunks to the adapter's [`EventEncoder`] and
//! records the events that it returns.

use everturn_agent::{AgentOutput, AgentStreamChunk};
use everturn_core::{Result, Streaming};
use futures::Stream;

use super::served_turn::ServedTurn;

/// Encodes a turn as the events of one protocol.
pub trait EventEncoder: Send {
    /// An event of the protocol.
    type Event: Send + Sync;

    /// Returns the events before the first chunk.
    fn start(&mut self) -> Vec<Self::Event>;

    /// Returns the events of a chunk.
    fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Self::Event>;

    /// Returns the events at the end of the turn.
    fn end(&mut self, outcome: Result<AgentOutput>) -> impl Future<Output = Vec<Self::Event>> + Send;

    /// Stores events for later readers, before the client receives them. `is_end` marks the last ones.
    fn record(&mut self, events: &[Self::Event], is_end: bool) -> impl Future<Output = ()> + Send {
        let _ = (events, is_end);
        async {}
    }
}

/// The chunks of a turn, and then its output.
pub trait TurnChunks: Send {
    /// Waits for chunks; none after the last.
    fn next_chunks(&mut self) -> impl Future<Output = Vec<AgentStreamChunk>> + Send;

    /// Returns the output, once, after the last chunk.
    fn take_output(&mut self) -> impl Future<Output = Result<AgentOutput>> + Send;
}

impl TurnChunks for ServedTurn {
    async fn next_chunks(&mut self) -> Vec<AgentStreamChunk> {
        self.next().await
    }

    async fn take_output(&mut self) -> Result<AgentOutput> {
        self.output().await
    }
}

/// The chunks of a background run that is watched.
impl TurnChunks for Streaming<AgentOutput, AgentStreamChunk> {
    async fn next_chunks(&mut self) -> Vec<AgentStreamChunk> {
        self.next().await.into_iter().collect()
    }

    async fn take_output(&mut self) -> Result<AgentOutput> {
        self.output().await
    }
}

/// A turn as the events of a protocol. Reading the events drives the turn.
#[derive(Debug)]
pub struct EncodedTurn<T, E> {
    chunks: T,
    encoder: E,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Start,
    Chunks,
    End,
}

impl<T: TurnChunks, E: EventEncoder> EncodedTurn<T, E> {
    /// Creates the events of a turn.
    pub fn new(chunks: T, encoder: E) -> Self {
        Self {
            chunks,
            encoder,
            phase: Phase::Start,
        }
    }

    /// Waits for the next events; `None` after the last.
    pub async fn next(&mut self) -> Option<Vec<E::Event>> {
        let events = match self.phase {
            Phase::Start => {
                self.phase = Phase::Chunks;
                self.encoder.start()
            }
            Phase::Chunks => self.next_of_chunks().await,
            Phase::End => return None,
        };
        self.encoder.record(&events, self.phase == Phase::End).await;
        Some(events)
    }

    async fn next_of_chunks(&mut self) -> Vec<E::Event> {
        loop {
            let chunks = self.chunks.next_chunks().await;
            if chunks.is_empty() {
                let outcome = self.chunks.take_output().await;
                self.phase = Phase::End;
                return self.encoder.end(outcome).await;
            }
            let events: Vec<E::Event> = chunks
                .iter()
                .flat_map(|chunk| self.encoder.chunk(chunk))
                .collect();
            if !events.is_empty() {
                return events;
            }
        }
    }

    /// Runs the turn to its end and returns its encoder.
    pub async fn run_to_end(mut self) -> E {
        while self.next().await.is_some() {}
        self.encoder
    }
}

impl<T, E> EncodedTurn<T, E>
where
    T: TurnChunks + 'static,
    E: EventEncoder + 'static,
{
    /// Returns the groups of events. Dropping the stream cancels a turn that it drives.
    pub fn into_stream(self) -> impl Stream<Item = Vec<E::Event>> + Send + 'static {
        // Boxed, because the stream moves it for every group.
        futures::stream::unfold(Box::new(self), |mut turn| async move {
            let events = turn.next().await?;
            Some((events, turn))
        })
    }
}
