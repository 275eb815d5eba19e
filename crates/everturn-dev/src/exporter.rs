//! Sends spans and log lines to the tools' trace server without blocking the program.
//!
//! A queue holds spans, with bounds on their number and bytes. Spans that do not fit are dropped and counted.
//! The server may be absent, slow or broken: a failed post is lost, and after a slow failure no post is tried
//! for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use everturn_core::{Error, LogLine, Result, SpanInterest, SpanListener, SpanRecord};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

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

/// A layer for a program's own subscriber that sends log lines, from `INFO` up, to the developer tools, each
/// with its span; created by [`DevTools::log_layer`](crate::DevTools::log_layer).
#[derive(Clone)]
pub struct LogLayer(pub(crate) Exporter);

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if *event.metadata().level() <= Level::INFO {
            self.0.log(LogLine::of(event));
        }
    }
}

everturn_core::opaque_debug!(LogLayer);

/// The timeout of one post.
const PATIENCE: Duration = Duration::from_secs(2);

/// Posts a body and waits for the response.
///
/// Uses hyper, which the server depends on anyway. The tools use plain HTTP on loopback, so a client with
/// TLS, proxies and pools would add only build time.
///
/// # Errors
/// `INVALID_ARGUMENT` if the address is invalid; `UNAVAILABLE` if the server cannot be reached, does not
/// respond in time, or responds with an error status.
pub(crate) async fn post(server: &str, path: &str, body: Bytes) -> Result<()> {
    tokio::time::timeout(PATIENCE, exchange(server, path, body))
        .await
        .unwrap_or_else(|_| Err(Error::unavailable(format!("{server} does not answer"))))
}

async fn exchange(server: &str, path: &str, body: Bytes) -> Result<()> {
    let unusable = || {
        Error::invalid_argument(format!(
            "'{server}' is not an address of the form http://host:port"
        ))
    };
    let uri: Uri = format!("{}{path}", server.trim_end_matches('/'))
        .parse()
        .map_err(|_| unusable())?;
    let authority = uri
        .authority()
        .filter(|_| uri.scheme_str() == Some("http"))
        .ok_or_else(unusable)?;
    let unreachable = |error: &dyn std::fmt::Display| Error::unavailable(format!("{server}: {error}"));
    // All addresses of `localhost` are tried, because the tools listen on 127.0.0.1 only.
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80)))
        .await
        .map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    let request = Request::post(uri.path())
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(body))
        .map_err(|_| unusable())?;
    let answering = async {
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| unreachable(&error))?;
        let status = answer.status();
        // The body is read and discarded, so that the connection ends properly. The timeout bounds a body
        // without end.
        let mut body = answer.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        if status.is_success() {
            Ok(())
        } else {
            Err(Error::unavailable(format!("{server} answered {status}")))
        }
    };
    tokio::pin!(answering, connection);
    tokio::select! {
        answered = &mut answering => answered,
        // The connection may end before its response was passed on.
        ended = &mut connection => match ended {
            Ok(()) => answering.await,
            Err(error) => Err(unreachable(&error)),
        },
    }
}
