//! The queue of events between the connection task and the owner of a conversation.
//!
//! Adding an event never waits, so the connection task can serve everything else. The task bounds the queue:
//! it stops reading while the queue is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_core::Result;
use tokio::sync::{Notify, mpsc};

use crate::events::Event;

/// The number of bytes of waiting events above which the connection task stops reading.
const MAX_WAITING: usize = 1024 * 1024;

/// The sending end of a queue.
#[derive(Debug)]
pub(super) struct EventSender {
    queue: mpsc::UnboundedSender<QueuedEvent>,
    waiting: Arc<Waiting>,
}

/// The receiving end of a queue.
#[derive(Debug)]
pub(super) struct EventReceiver {
    queue: mpsc::UnboundedReceiver<QueuedEvent>,
    waiting: Arc<Waiting>,
}

#[derive(Debug)]
struct QueuedEvent {
    event: Result<Event>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    taken: Notify,
}

/// Creates a queue.
pub(super) fn event_queue() -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::<Waiting>::default();
    let input = EventSender {
        queue: sender,
        waiting: Arc::clone(&waiting),
    };
    let output = EventReceiver {
        queue: receiver,
        waiting,
    };
    (input, output)
}

impl EventSender {
    /// Adds an event and its size in bytes; drops it if the receiving end is dropped.
    pub(super) fn put(&self, event: Result<Event>, bytes: usize) {
        self.waiting.bytes.fetch_add(bytes, Ordering::SeqCst);
        let _ = self.queue.send(QueuedEvent { event, bytes });
    }

    /// Returns whether there is room for another event.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.bytes.load(Ordering::SeqCst) < MAX_WAITING
    }

    /// Waits until there is room for another event.
    pub(super) async fn room(&self) {
        while !self.has_room() {
            // `notify_one` stores a permit, so an event taken since the check is not missed.
            self.waiting.taken.notified().await;
        }
    }

    /// Waits until the receiving end is dropped.
    pub(super) async fn abandoned(&self) {
        self.queue.closed().await;
    }
}

impl EventReceiver {
    /// Takes the next event; `None` after the last.
    pub(super) async fn take(&mut self) -> Option<Result<Event>> {
        let QueuedEvent { event, bytes } = self.queue.recv().await?;
        self.waiting.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.waiting.taken.notify_one();
        Some(event)
    }
}
