//! What is on its way to the client, in order.

use std::collections::VecDeque;

use everturn_core::{Emitter, Error, Sending};

use super::outbox::Receipt;
use crate::AgentStreamChunk;

/// The queue of chunks. One is being sent at a time; a client that takes its time holds up the queue and nobody else,
/// except those who wait for their chunk to be taken.
pub(super) struct Wire {
    emitter: Emitter<AgentStreamChunk>,
    queue: VecDeque<(Option<AgentStreamChunk>, Taken)>,
    sending: Option<(Sending, Taken)>,
    state: State,
}

/// Whoever waits for a chunk to be taken.
type Taken = Option<Receipt>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Someone waits for the queue to become empty.
    Draining,
    /// Nothing is sent any more.
    Silent,
}

pub(super) enum WireEvent {
    /// Everything queued before the drain was taken.
    Empty,
    /// The client takes nothing any more.
    Broken(Error),
}

impl Wire {
    pub(super) fn new(emitter: Emitter<AgentStreamChunk>) -> Self {
        Self {
            emitter,
            queue: VecDeque::new(),
            sending: None,
            state: State::Open,
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.state == State::Silent
    }

    /// Queues a chunk, or only the wish to know when all before it were taken.
    pub(super) fn queue(&mut self, chunk: Option<AgentStreamChunk>, taken: Taken) {
        // Nobody listens: what is sent is taken.
        if self.state != State::Silent && self.emitter.is_streaming() {
            self.queue.push_back((chunk, taken));
        }
    }

    /// Sends nothing any more and releases everyone who waits.
    pub(super) fn silence(&mut self) {
        self.state = State::Silent;
        self.queue.clear();
        self.sending = None;
    }

    /// Reports when everything queued so far was taken.
    pub(super) fn drain(&mut self) {
        if self.state == State::Open {
            self.state = State::Draining;
        }
    }

    /// Sends what is queued. May be dropped at any time without losing a chunk.
    pub(super) async fn flush(&mut self) -> WireEvent {
        loop {
            if let Some((sending, _)) = &mut self.sending {
                let sent = sending.await;
                // Whoever waited for it is released.
                self.sending = None;
                if let Err(error) = sent {
                    return WireEvent::Broken(error);
                }
            }
            match self.queue.pop_front() {
                Some((Some(chunk), taken)) => {
                    self.sending = Some((self.emitter.send(chunk), taken));
                }
                Some((None, taken)) => drop(taken),
                None if self.state == State::Draining => {
                    self.state = State::Open;
                    return WireEvent::Empty;
                }
                None => std::future::pending().await,
            }
        }
    }
}
