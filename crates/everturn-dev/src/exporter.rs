//! Sends spans and log lines to the tools' trace server without blocking the program.
//!
//! A queue holds spans, with bounds on their number and bytes. Spans that do not fit are dropped and counted.
//! The server may be absent, slow or broken: a failed post is lost, and after a slow failure no post is tried
//! for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use everturn_core::{LogLine, Result, SpanInterest, SpanListener, SpanRecord};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::post::post;
use crate::trace_format;

/// The maximum number of queued spans and lines.
const MAX_WAITING: usize = 8192;

/// The maximum number of queued bytes.
const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;

/// How long a response to the tools waits for its spans to be posted.
const FLUSH: Duration = Duration::from_secs(2);

/// How long posting pauses after a slow failure.
const REST: Duration = Duration::from_secs(5);

/// The duration above which a failed post counts as slow.
const SLOW: Duration = Duration::from_millis(500);

/// The sending end of the queue. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Exporter(Arc<Queue>);

struct Queue {
    sender: mpsc::Sender<Item>,
    waiting_bytes: Arc<AtomicUsize>,
    dropped: AtomicU64,
    realtime: bool,
    server: Arc<Server>,
}

/// The address of the trace server.
struct Server {
    url: Mutex<Option<String>>,
    /// The environment named the server, which overrides the address sent by the tools.
    fixed: bool,
}

enum Item {
    Started(Arc<SpanRecord>),
    Ended(Arc<SpanRecord>),
    Logged(LogLine),
    Flush(oneshot::Sender<()>),
}

impl Exporter {
    /// Creates a queue and the worker that empties it until the last sender is dropped.
    pub(crate) fn new(server: Option<String>, realtime: bool) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let server = Arc::new(Server {
            fixed: server.is_some(),
            url: Mutex::new(server),
        });
        let posting = Posting {
            receiver,
            waiting_bytes: Arc::clone(&waiting_bytes),
            server: Arc::clone(&server),
            resting_until: None,
            complained: AtomicBool::new(false),
        };
        let queue = Queue {
            sender,
            waiting_bytes,
            dropped: AtomicU64::new(0),
            realtime,
            server,
        };
        (Self(Arc::new(queue)), posting.run())
    }

    /// Sets the server for further spans, unless the environment named one.
    pub(crate) fn use_server(&self, url: &str) {
        let server = &self.0.server;
        if !server.fixed {
            *server.url.lock() = Some(url.to_owned());
        }
    }

    /// Waits until the queued spans were posted, for a short time at most.
    pub(crate) async fn flush(&self) {
        let (done, posted) = oneshot::channel();
        let flushing = async {
            if self.0.sender.send(Item::Flush(done)).await.is_ok() {
                let _ = posted.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH, flushing).await;
    }

    pub(crate) fn log(&self, line: LogLine) {
        self.queue(line.size(), || Item::Logged(line));
    }

    /// Returns the number of spans and log lines dropped because the queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    fn queue(&self, bytes: usize, item: impl FnOnce() -> Item) {
        let queue = &*self.0;
        let before = queue.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let room = before + bytes <= MAX_WAITING_BYTES;
        // Space is reserved first, so that dropped spans are not copied.
        match queue.sender.try_reserve() {
            Ok(place) if room => place.send(item()),
            _ => {
                queue.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                if queue.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                    eprintln!("everturn: too many spans for the developer tools; some are not shown");
                }
            }
        }
    }
}

impl SpanListener for Exporter {
    fn started(&self, span: &SpanRecord) {
        if self.0.realtime {
            self.queue(span.size(), || Item::Started(Arc::new(span.clone())));
        }
    }

    fn ended(&self, span: &Arc<SpanRecord>) {
        self.queue(span.size(), || Item::Ended(Arc::clone(span)));
    }

    fn interest(&self) -> SpanInterest {
        SpanInterest {
            starts: self.0.realtime,
            content: true,
        }
    }
}

/// The receiving end of the queue.
struct Posting {
    receiver: mpsc::Receiver<Item>,
    waiting_bytes: Arc<AtomicUsize>,
    server: Arc<Server>,
    resting_until: Option<Instant>,
    complained: AtomicBool,
}

impl Posting {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.receiver.recv_many(&mut batch, 256).await > 0 {
            let (mut started, mut ended, mut logged) = (Vec::new(), Vec::new(), Vec::new());
            for item in batch.drain(..) {
                match item {
                    Item::Started(span) => started.push(span),
                    Item::Ended(span) => ended.push(span),
                    Item::Logged(line) => logged.push(line),
                    Item::Flush(done) => {
                        self.post_all(&mut started, &mut ended, &mut logged).await;
                        let _ = done.send(());
                    }
                }
            }
            self.post_all(&mut started, &mut ended, &mut logged).await;
        }
    }

    async fn post_all(
        &mut self,
        started: &mut Vec<Arc<SpanRecord>>,
        ended: &mut Vec<Arc<SpanRecord>>,
        logged: &mut Vec<LogLine>,
    ) {
        // Begin events are posted first: the server ignores one that arrives after its end event.
        for spans in [started, ended] {
            let mut traces: BTreeMap<_, Vec<&SpanRecord>> = BTreeMap::new();
            for span in &*spans {
                self.waiting_bytes.fetch_sub(span.size(), Ordering::Relaxed);
                traces.entry(span.ids.trace).or_default().push(span);
            }
            for spans in traces.values() {
                self.post("/api/traces", || trace_format::trace(spans)).await;
            }
            spans.clear();
        }
        if !logged.is_empty() {
            for line in &*logged {
                self.waiting_bytes.fetch_sub(line.size(), Ordering::Relaxed);
            }
            self.post("/api/otlp", || trace_format::logs(logged)).await;
            logged.clear();
        }
    }

    async fn post(&mut self, path: &str, body: impl FnOnce() -> Value) {
        let url = self.server.url.lock().clone();
        let Some(url) = url else {
            return;
        };
        if self.resting_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let began = Instant::now();
        let posted: Result<()> = post(&url, path, body().to_string().into()).await;
        let slow = began.elapsed() >= SLOW;
        self.resting_until = (posted.is_err() && slow).then(|| Instant::now() + REST);
        if let Err(error) = posted {
            // Printed once, and not as a log line: log lines are posted to the same server.
            if !self.complained.swap(true, Ordering::Relaxed) {
                eprintln!(
                    "everturn: sending traces to the developer tools failed: {}",
                    error.message()
                );
            }
        }
    }
}
