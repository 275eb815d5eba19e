//! A provider's server on this machine, with scripted responses and injected network faults.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// `null` if it is not JSON.
    pub(crate) body: Value,
}

/// The server's response.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The sizes of the pieces that the body is sent in, over and over; whole if there are none.
    sizes: Vec<usize>,
    end: End,
    is_compressed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Whole,
    /// The connection breaks after so many bytes of the body.
    Cut(usize),
    /// Nothing more comes after so many bytes of the body, and the connection stays.
    Silence(usize),
    /// The connection is closed before any answer.
    Refusal,
}

impl Reply {
    fn new(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.into(),
            sizes: Vec::new(),
            end: End::Whole,
            is_compressed: false,
        }
    }

    /// A stream of events, written as it goes over the wire.
    pub(crate) fn events(text: impl Into<Vec<u8>>) -> Self {
        Self::new("text/event-stream", text)
    }

    /// A JSON value.
    pub(crate) fn json(value: &Value) -> Self {
        Self::new("application/json", value.to_string())
    }

    /// A page, as proxies answer.
    pub(crate) fn page(text: &str) -> Self {
        Self::new("text/html", text)
    }

    /// One JSON value per line.
    pub(crate) fn lines(values: &[Value]) -> Self {
        let lines: Vec<String> = values.iter().map(|value| format!("{value}\n")).collect();
        Self::new("application/x-ndjson", lines.concat())
    }

    /// Closes the connection before any answer.
    pub(crate) fn refusal() -> Self {
        Self {
            end: End::Refusal,
            ..Self::new("", "")
        }
    }

    pub(crate) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the body in pieces of so many bytes; the client sees each as one.
    pub(crate) fn split(self, piece: usize) -> Self {
        self.split_by(vec![piece])
    }

    /// Sends the body in pieces of these sizes, over and over.
    pub(crate) fn split_by(self, sizes: Vec<usize>) -> Self {
        Self { sizes, ..self }
    }

    /// Breaks the connection after so many bytes of the body.
    pub(crate) fn cut_at(self, bytes: usize) -> Self {
        Self {
            end: End::Cut(bytes),
            ..self
        }
    }

    /// Falls silent after so many bytes of the body, and keeps the connection.
    pub(crate) fn silent_at(self, bytes: usize) -> Self {
        Self {
            end: End::Silence(bytes),
            ..self
        }
    }

    /// Compresses the body, flushed after each piece.
    pub(crate) fn gzip(self) -> Self {
        Self {
            is_compressed: true,
            ..self.header("content-encoding", "gzip")
        }
    }

    fn pieces(&self) -> Vec<Vec<u8>> {
        let body = match self.end {
            End::Cut(bytes) | End::Silence(bytes) => &self.body[..bytes.min(self.body.len())],
            End::Whole | End::Refusal => &self.body[..],
        };
        let mut rest = body;
        let sizes = self.sizes.iter().copied().cycle().chain([usize::MAX]);
        let pieces = sizes.map_while(|size| {
            let (piece, others) = rest.split_at(size.min(rest.len()));
            rest = others;
            (!piece.is_empty()).then_some(piece)
        });
        if !self.is_compressed {
            return pieces.map(<[u8]>::to_vec).collect();
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut compressed = Vec::new();
        for piece in pieces {
            encoder.write_all(piece).unwrap();
            encoder.flush().unwrap();
            compressed.push(std::mem::take(encoder.get_mut()));
        }
        compressed.push(encoder.finish().unwrap());
        compressed
    }
}

/// Events as they go over the wire, each a `data:` line.
pub(crate) fn sse(events: &[Value]) -> String {
    let lines: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    lines.concat()
}

/// Events as they go over the wire, each named after its `type`.
pub(crate) fn named_sse(events: &[Value]) -> String {
    let named = |event: &Value| {
        let name = event["type"].as_str().unwrap_or("message");
        format!("event: {name}\ndata: {event}\n\n")
    };
    events.iter().map(named).collect::<Vec<_>>().concat()
}

#[derive(Default)]
struct Log {
    requests: Mutex<Vec<Request>>,
    arrived: Notify,
    left: Notify,
}

/// The server. It ends with this value.
pub(crate) struct Server {
    url: String,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

type Script = Arc<Mutex<dyn FnMut(&Request) -> Reply + Send>>;

impl Server {
    /// A server that answers each request by `script`.
    pub(crate) async fn start(script: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Log::default());
        let script: Script = Arc::new(Mutex::new(script));
        let shared = Arc::clone(&log);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, log) = (Arc::clone(&script), Arc::clone(&shared));
                // A client that goes away is what some tests are about.
                tokio::spawn(async move { serve(stream, &script, &log).await.ok() });
            }
        });
        Self { url, log, task }
    }

    /// A server that gives these answers, one per request.
    pub(crate) async fn replies(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        let exhausted = || Reply::json(&Value::from("the script has no more answers")).status(418);
        Self::start(move |_| replies.pop_front().unwrap_or_else(exhausted)).await
    }

    /// The address, without a slash at its end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.log.requests.lock().unwrap().clone()
    }

    /// The body of the last request.
    pub(crate) fn last_body(&self) -> Value {
        self.requests().pop().expect("there was a request").body
    }

    /// Waits for a request.
    pub(crate) async fn request_arrived(&self) {
        self.log.arrived.notified().await;
    }

    /// Waits until a client closes its connection in the middle of a silent answer.
    pub(crate) async fn client_left(&self) {
        self.log.left.notified().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, script: &Script, log: &Log) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(request) = read(&mut stream).await? else {
        return Ok(());
    };
    let reply = (script.lock().unwrap())(&request);
    log.requests.lock().unwrap().push(request);
    log.arrived.notify_one();
    if reply.end == End::Refusal {
        return Ok(());
    }
    let mut head = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    let is_before_answer = reply.end == End::Silence(0);
    if !is_before_answer {
        head.push_str("transfer-encoding: chunked\r\n\r\n");
        let mut out = head.into_bytes();
        for piece in reply.pieces().iter().filter(|piece| !piece.is_empty()) {
            write!(out, "{:x}\r\n", piece.len())?;
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        if reply.end == End::Whole {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        stream.write_all(&out).await?;
        stream.flush().await?;
    }
    if matches!(reply.end, End::Silence(_)) {
        // Ends when the client does: nothing else comes from it.
        while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
        log.left.notify_one();
    }
    stream.shutdown().await
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let body_start = head_end + 4;
    while bytes.len() < body_start + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let body = serde_json::from_slice(&bytes[body_start..]).unwrap_or(Value::Null);
    Ok(Some(Request {
        method,
        path,
        headers,
        body,
    }))
}
