//! Events on their way to whoever has a conversation.
//!
//! They are put there without waiting, so that the connection can be listened to for everything else. How many there are is
//! bounded by who puts them there: nothing more is read while there is no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_core::Result;
use tokio::sync::{Notify, mpsc};

use crate::events::Event;

/// How many bytes of events may wait before nothing more is read.
const MAX_WAITING: usize = 1024 * 1024;

/// Where events are put.
#[derive(Debug)]
pub(super) struct Mailbox {
    letters: mpsc::UnboundedSender<Letter>,
    waiting: Arc<Waiting>,
}

/// Where they are taken.
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

/// Both ends.
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
    /// Puts an event there that came as so many bytes; if nobody takes it any more, it is dropped.
    pub(super) fn put(&self, event: Result<Event>, bytes: usize) {
        self.waiting.bytes.fetch_add(bytes, Ordering::SeqCst);
        let _ = self.letters.send(Letter { event, bytes });
    }

    /// Whether one more event may come.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.bytes.load(Ordering::SeqCst) < MAX_WAITING
    }

    /// Waits until one more event may come.
    pub(super) async fn room(&self) {
        while !self.has_room() {
            // What was taken since the look is remembered.
            self.waiting.taken.notified().await;
        }
    }

    /// Waits until nobody takes events any more.
    pub(super) async fn abandoned(&self) {
        self.letters.closed().await;
    }
}

impl Inbox {
    /// The next event; `None` if no more are put there.
    pub(super) async fn take(&mut self) -> Option<Result<Event>> {
        let Letter { event, bytes } = self.letters.recv().await?;
        self.waiting.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.waiting.taken.notify_one();
        Some(event)
    }
}
