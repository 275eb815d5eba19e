//! The bounded queue between the program and the exporting thread. The program never waits for it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use everturn_core::{LogLine, SpanInterest, SpanListener, SpanRecord};
use tokio::sync::{mpsc, oneshot};

/// The maximum number of queued spans and lines.
const MAX_WAITING: usize = 16 * 1024;

/// The maximum number of queued bytes.
const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;

/// An item for the collector.
pub(crate) enum Item {
    Span(Arc<SpanRecord>),
    Line(LogLine),
    /// Answered once all earlier items were sent.
    Flush(oneshot::Sender<()>),
}

impl Item {
    /// Returns the approximate size of the item in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Span(span) => span.size(),
            Self::Line(line) => line.size(),
            Self::Flush(_) => 0,
        }
    }
}

/// The sending end of the queue. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Queue {
    sender: mpsc::Sender<Item>,
    counts: Arc<Counts>,
    wants_content: bool,
    wants_lines: bool,
}

/// The counters that both ends share.
#[derive(Default)]
pub(crate) struct Counts {
    waiting_bytes: AtomicUsize,
    dropped: AtomicU64,
}

impl Counts {
    /// Subtracts an item that has left the queue.
    pub(crate) fn left(&self, item: &Item) {
        self.waiting_bytes.fetch_sub(item.size(), Ordering::Relaxed);
    }

    /// Returns the number of items that did not fit or could not be sent.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts lost items.
    pub(crate) fn lose(&self, items: usize) {
        self.dropped.fetch_add(items as u64, Ordering::Relaxed);
    }
}

impl Queue {
    pub(crate) fn new(wants_content: bool, wants_lines: bool) -> (Self, mpsc::Receiver<Item>) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let queue = Self {
            sender,
            counts: Arc::default(),
            wants_content,
            wants_lines,
        };
        (queue, receiver)
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    pub(crate) fn log(&self, line: LogLine) {
        if self.wants_lines {
            self.put(Item::Line(line));
        }
    }

    /// Requests a flush, and returns a receiver that is notified when it is complete.
    pub(crate) async fn flush(&self) -> Option<oneshot::Receiver<()>> {
        let (done, sent) = oneshot::channel();
        self.sender.send(Item::Flush(done)).await.ok()?;
        Some(sent)
    }

    fn put(&self, item: Item) {
        let bytes = item.size();
        let waiting = self.counts.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if waiting + bytes > MAX_WAITING_BYTES || self.sender.try_send(item).is_err() {
            self.counts.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.lose(1);
        }
    }
}

impl SpanListener for Queue {
    fn started(&self, _span: &SpanRecord) {}

    fn ended(&self, span: &Arc<SpanRecord>) {
        if span.is_sampled {
            self.put(Item::Span(Arc::clone(span)));
        }
    }

    fn interest(&self) -> SpanInterest {
        SpanInterest {
            starts: false,
            content: self.wants_content,
        }
    }
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this is the exporting thread.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Marks this thread as the one that exports.
pub(crate) fn mark_worker() {
    IS_WORKER.set(true);
}
