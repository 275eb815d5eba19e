//! A loopback server with scripted responses.

pub(crate) mod kitchen;
mod proxy;
pub(crate) mod websocket_server;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use everturn_client::{Client, ClientBuilder, Retries, reqwest};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) use self::proxy::Proxy;

/// The response to one request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Vec<u8>>,
    ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    /// The connection is closed after the last piece.
    Close,
    /// The connection breaks before the announced length.
    Break,
    /// The connection stays open without further bytes.
    Silence,
}

impl Reply {
    pub(crate) fn new(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            pieces: vec![body.as_ref().to_vec()],
            ending: Ending::Close,
        }
        .header("content-type", content_type)
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    /// A stream of these bytes.
    pub(crate) fn stream(body: impl AsRef<[u8]>) -> Self {
        Self::new(200, "text/event-stream", body)
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            pieces: Vec::new(),
            ending: Ending::Close,
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The connection breaks after the sent bytes.
    pub(crate) fn broken(mut self) -> Self {
        self.ending = Ending::Break;
        self
    }

    /// The connection stays open, without further bytes.
    pub(crate) fn silent(mut self) -> Self {
        self.ending = Ending::Silence;
        self
    }

    async fn write(&self, connection: &mut TcpStream) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        let is_chunked = self.ending != Ending::Close;
        if is_chunked {
            head.push_str("transfer-encoding: chunked\r\n");
        }
        head.push_str("\r\n");
        connection.write_all(head.as_bytes()).await?;
        for piece in &self.pieces {
            if is_chunked {
                connection
                    .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
                    .await?;
            }
            connection.write_all(piece).await?;
            if is_chunked {
                connection.write_all(b"\r\n").await?;
            }
            connection.flush().await?;
        }
        if self.ending == Ending::Silence {
            // Returns once the client disconnects.
            let mut rest = [0; 64];
            while connection.read(&mut rest).await? > 0 {}
        }
        connection.shutdown().await
    }
}

/// A request as received by the server.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Value,
    headers: Vec<(String, String)>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    async fn read(connection: &mut TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            if connection.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
        let mut lines = head.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
        while bytes.len() < end + 4 + length {
            if connection.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        Some(Self {
            method,
            path,
            body: serde_json::from_slice(&bytes[end + 4..]).unwrap_or_default(),
            headers,
        })
    }
}

/// A server with one scripted response per request, which records the requests.
pub(crate) struct Loopback {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    serving: JoinHandle<()>,
}

impl Loopback {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/agent", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let replies = Arc::new(Mutex::new(replies.into_iter().collect::<VecDeque<_>>()));
        let log = Arc::clone(&received);
        let serving = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let (log, replies) = (Arc::clone(&log), Arc::clone(&replies));
                tokio::spawn(async move {
                    let Some(request) = Received::read(&mut connection).await else {
                        return;
                    };
                    log.lock().push(request);
                    let reply = replies.lock().pop_front();
                    let reply = reply.unwrap_or_else(|| Reply::new(418, "text/plain", "unexpected request"));
                    let _ = reply.write(&mut connection).await;
                });
            }
        });
        Self {
            url,
            received,
            serving,
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A client that retries immediately.
pub(crate) fn impatient() -> Client {
    impatient_builder().build().unwrap()
}

/// Without the certificates of this machine, which are slow to load and not needed here.
pub(crate) fn impatient_builder() -> ClientBuilder {
    everturn_core::install_tls_provider();
    let http = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    Client::builder().http(http).retries(at_once(3))
}

pub(crate) fn at_once(attempts: u32) -> Retries {
    Retries {
        attempts,
        first_delay: Duration::from_millis(1),
        longest_delay: Duration::from_millis(1),
    }
}
