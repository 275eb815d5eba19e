//! The queue between the program and the thread that exports: bounded, and never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use everturn_core::{LogLine, SpanInterest, SpanListener, SpanRecord};
use tokio::sync::{mpsc, oneshot};

/// How many spans and lines may wait.
const MAX_WAITING: usize = 16 * 1024;

/// How many bytes they may have.
const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;

/// Something on its way to the collector.
pub(crate) enum Item {
    Span(Arc<SpanRecord>),
    Line(LogLine),
    /// Answered once everything before it was sent.
    Flush(oneshot::Sender<()>),
}

impl Item {
    /// Returns about how many bytes the item holds.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Span(span) => span.size(),
            Self::Line(line) => line.size(),
            Self::Flush(_) => 0,
        }
    }
}

/// The end of the queue at which items go in. A clone is another handle.
#[derive(Clone)]
pub(crate) struct Queue {
    sender: mpsc::Sender<Item>,
    counts: Arc<Counts>,
    wants_content: bool,
    wants_lines: bool,
}

/// What both ends of the queue count.
#[derive(Default)]
pub(crate) struct Counts {
    waiting_bytes: AtomicUsize,
    dropped: AtomicU64,
}

impl Counts {
    /// Notes that an item has left the queue.
    pub(crate) fn left(&self, item: &Item) {
        self.waiting_bytes.fetch_sub(item.size(), Ordering::Relaxed);
    }

    /// Returns how many items found no room, or could not be sent.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts items that are lost.
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

    /// Asks for everything that waits to be sent, and returns what is told when it was.
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
