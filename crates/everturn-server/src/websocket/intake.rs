//! Inputs on their way to a conversation.

use std::collections::VecDeque;

use everturn_core::{Result, Sender};
use futures::future::BoxFuture;
use serde_json::Value;

/// How many inputs may wait for the agent to take them.
const MAX_WAITING: usize = 16;

/// How many bytes they may have together before no more are taken.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Inputs in the order in which they came. Whoever sends them does not wait until the agent takes them: what comes after
/// may be a reason not to.
pub(super) struct Intake {
    sender: Sender<Value>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// The one that is being handed over; kept here, because an input must not be lost with the future that waits.
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

    /// Whether one more input may come.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING && self.waiting_bytes < MAX_WAITING_BYTES
    }

    /// Takes an input that came as so many bytes; one that comes after the last is dropped.
    pub(super) fn push(&mut self, input: Value, bytes: usize) {
        if !self.is_closed {
            self.waiting_bytes += bytes;
            self.waiting.push_back(Waiting { input, bytes });
        }
    }

    /// There will be no more inputs.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.settle();
    }

    /// Hands one input over; waits for ever if there is none. Nothing is lost if this is dropped.
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
            // An agent that takes no more inputs has completed, or is about to: its end is told as its own.
            let _ = handing_over.await;
        }
        self.handing_over = None;
        self.settle();
    }

    /// Says that there are no more inputs once the last is handed over.
    fn settle(&mut self) {
        if self.is_closed && self.waiting.is_empty() && self.handing_over.is_none() {
            self.sender.close();
        }
    }
}
