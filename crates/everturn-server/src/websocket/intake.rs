//! The queue of inputs of a conversation.

use std::collections::VecDeque;

use everturn_core::Sender;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::permits::Permit;

/// The greatest number of inputs that wait for the agent.
const MAX_WAITING: usize = 16;

/// The number of waiting bytes from which on no more inputs are accepted.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Inputs in the order of their arrival. The socket does not wait until the agent takes an input, because a
/// later frame may end the conversation.
pub(super) struct Intake {
    sender: Sender<Value>,
    /// The inputs, with the permits for their values.
    waiting: VecDeque<(Value, Permit)>,
    waiting_bytes: usize,
    /// The input that is being passed on. It is kept here, because dropping the waiting future must not lose
    /// it.
    handing_over: Option<BoxFuture<'static, Permit>>,
    is_closed: bool,
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

    /// Accepts an input. An input after the last is dropped.
    pub(super) fn push(&mut self, input: Value, values: Permit) {
        if !self.is_closed {
            self.waiting_bytes += values.bytes();
            self.waiting.push_back((input, values));
        }
    }

    /// Announces that there are no more inputs.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.settle();
    }

    /// Passes one input on and returns the permit for its values; waits forever if there is none. Dropping
    /// the future loses nothing.
    pub(super) async fn hand_over(&mut self) -> Permit {
        let handing_over = match &mut self.handing_over {
            Some(handing_over) => handing_over,
            none => {
                let Some((input, values)) = self.waiting.pop_front() else {
                    return std::future::pending().await;
                };
                self.waiting_bytes -= values.bytes();
                let sender = self.sender.clone();
                none.insert(Box::pin(async move {
                    // An agent that takes no more inputs has completed or is about to; its end is sent
                    // separately.
                    let _ = sender.send(input).await;
                    values
                }))
            }
        };
        let values = handing_over.await;
        self.handing_over = None;
        self.settle();
        values
    }

    /// Closes the agent's input once the last input is passed on.
    fn settle(&mut self) {
        if self.is_closed && self.waiting.is_empty() && self.handing_over.is_none() {
            self.sender.close();
        }
    }
}
