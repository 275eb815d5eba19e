//! The events that wait for the owner of a conversation.
//!
//! Putting an event never waits, so that the connection task can serve everything else. The task bounds the mailbox: it
//! stops reading while there is no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_core::Result;
use tokio::sync::{Notify, mpsc};

use crate::events::Event;

/// The number of bytes of waiting events above which the task stops reading.
const MAX_WAITING: usize = 1024 * 1024;

/// The sending end of a mailbox.
#[derive(Debug)]
pub(super) struct Mailbox {
    letters: mpsc::UnboundedSender<Letter>,
    waiting: Arc<Waiting>,
}

/// The receiving end of a mailbox.
#[derive(Debug)]
pub(super) struct Inbox {
    letters: mpsc::UnboundedReceiver<Letter>,
    waiting: Arc<Waiting>,
}

#[derive(Debug)]
struct Letter {
    event: Result<Event>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    taken: Notify,
}

/// Creates both ends.
pub(super) fn mailbox() -> (Mailbox, Inbox) {
    let (sender, letters) = mpsc::unbounded_channel();
    let waiting = Arc::<Waiting>::default();
    let mailbox = Mailbox {
        letters: sender,
        waiting: Arc::clone(&waiting),
    };
    (mailbox, Inbox { letters, waiting })
}

impl Mailbox {
    /// Puts an event of so many bytes into the mailbox; drops it if the receiving end is gone.
    pub(super) fn put(&self, event: Result<Event>, bytes: usize) {
        self.waiting.bytes.fetch_add(bytes, Ordering::SeqCst);
        let _ = self.letters.send(Letter { event, bytes });
    }

    /// Returns whether there is room for another event.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.bytes.load(Ordering::SeqCst) < MAX_WAITING
    }

    /// Waits until there is room for another event.
    pub(super) async fn room(&self) {
        while !self.has_room() {
            // `notified` remembers an event taken since the check, so no wake-up is lost.
            self.waiting.taken.notified().await;
        }
    }

    /// Waits until the receiving end is dropped.
    pub(super) async fn abandoned(&self) {
        self.letters.closed().await;
    }
}

impl Inbox {
    /// Takes the next event; `None` after the last.
    pub(super) async fn take(&mut self) -> Option<Result<Event>> {
        let Letter { event, bytes } = self.letters.recv().await?;
        self.waiting.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.waiting.taken.notify_one();
        Some(event)
    }
}
