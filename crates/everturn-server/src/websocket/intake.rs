//! The queue of inputs of a conversation.

use std::collections::VecDeque;

use everturn_core::{Result, Sender};
use futures::future::BoxFuture;
use serde_json::Value;

/// The greatest number of inputs that wait for the agent.
const MAX_WAITING: usize = 16;

/// The number of waiting bytes from which on no more inputs are accepted.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Inputs in the order of their arrival. The socket does not wait until the agent takes an input, because a later frame may
/// end the conversation.
pub(super) struct Intake {
    sender: Sender<Value>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// The input that is being passed on. It is kept here, because dropping the waiting future must not lose it.
    handing_over: Option<BoxFuture<'static, Result<()>>>,
    is_closed: bool,
}

struct Waiting {
    input: Value,
    bytes: usize,
}

impl Intake {
    pub(super) fn new(sender: Sender<Value>) -> Self {
        Self {
            sender,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            handing_over: None,
            is_closed: false,
        }
    }

    /// Returns whether one more input is accepted.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING && self.waiting_bytes < MAX_WAITING_BYTES
    }

    /// Accepts an input that was sent as `bytes` bytes. An input after the last is dropped.
    pub(super) fn push(&mut self, input: Value, bytes: usize) {
        if !self.is_closed {
            self.waiting_bytes += bytes;
            self.waiting.push_back(Waiting { input, bytes });
        }
    }

    /// Announces that there are no more inputs.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.settle();
    }

    /// Passes one input on; waits forever if there is none. Dropping the future loses nothing.
    pub(super) async fn hand_over(&mut self) {
        if self.handing_over.is_none() {
            let Some(Waiting { input, bytes }) = self.waiting.pop_front() else {
                return std::future::pending().await;
            };
            self.waiting_bytes -= bytes;
            let sender = self.sender.clone();
            self.handing_over = Some(Box::pin(async move { sender.send(input).await }));
        }
        if let Some(handing_over) = &mut self.handing_over {
            // An agent that takes no more inputs has completed or is about to; its end is sent separately.
            let _ = handing_over.await;
        }
        self.handing_over = None;
        self.settle();
    }

    /// Closes the agent's input once the last input is passed on.
    fn settle(&mut self) {
        if self.is_closed && self.waiting.is_empty() && self.handing_over.is_none() {
            self.sender.close();
        }
    }
}
