//! A program under the tools, and a client that acts as the tools.

use std::sync::{Arc, Mutex};

use everturn_core::{Emitter, Error, Registry, run};
use everturn_dev::{DevTools, Environment};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// A program with a few flows.
pub(crate) fn program() -> Registry {
    let registry = Registry::new();
    registry
        .define_flow("hello", |name: String| async move {
            Ok(run("greet", || async { Ok(format!("Hello, {name}!")) }).await?)
        })
        .unwrap();
    registry
        .define_streaming_flow("count", |to: u32, emitter: Emitter<u32>| async move {
            for n in 0..to {
                emitter.send(n).await?;
            }
            Ok("counted".to_owned())
        })
        .unwrap();
    registry
        .define_flow("fail", |(): ()| async {
            Err::<(), _>(Error::internal("boom").into())
        })
        .unwrap();
    registry
        .define_flow("wait", |(): ()| async {
            std::future::pending::<everturn_core::HandlerResult<()>>().await
        })
        .unwrap();
    registry
        .define_bidi_flow(
            "parrot",
            |greeting: String, mut inputs: everturn_core::Inputs<String>, emitter: Emitter<String>| async move {
                let mut count = 0;
                while let Some(line) = inputs.next().await {
                    emitter.send(format!("{greeting}{line}")).await?;
                    count += 1;
                }
                Ok(count)
            },
        )
        .unwrap();
    registry
}

/// Defines an agent `chef` with a store, whose model repeats the user.
pub(crate) fn echoing_chef(registry: &Registry) -> everturn_agent::Agent {
    everturn_testkit::EchoModel.register(registry, "echo").unwrap();
    everturn_agent::agent(registry, "chef")
        .model("echo")
        .store(everturn_agent::store::MemoryStore::new())
        .define()
        .unwrap()
}

/// Connects a program to the tools over HTTP, in a temporary folder.
pub(crate) async fn started(registry: &Registry, environment: Environment) -> (DevTools, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let tools = DevTools::start_in(registry, environment, folder.path().to_owned())
        .await
        .unwrap();
    (tools, folder)
}

/// Sends a request like the tools do, and returns its status, its headers in lower case, and its body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

pub(crate) async fn request(url: &str, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let host = if headers.to_ascii_lowercase().contains("host:") {
        String::new()
    } else {
        format!("host: {address}\r\n")
    };
    let text = format!(
        "{method} {path} HTTP/1.1\r\n{host}{headers}content-type: application/json\r\ncontent-length: {}\r\nconnection: \
         close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    let body = if head.contains("transfer-encoding: chunked") {
        unchunked(body)
    } else {
        body.to_owned()
    };
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head,
        body,
    }
}

fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        text = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

pub(crate) async fn run_action(url: &str, body: Value) -> Answer {
    request(url, "POST", "/api/runAction", "", &body.to_string()).await
}

/// A trace server that records the posts.
pub(crate) struct TraceServer {
    pub(crate) url: String,
    pub(crate) posts: Arc<Mutex<Vec<(String, Value)>>>,
    _serving: AbortOnDropHandle<()>,
}

impl TraceServer {
    /// A server that responds to every post with this text.
    pub(crate) async fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let posts: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let kept = Arc::clone(&posts);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    let _ = take(stream, answer, &kept).await;
                });
            }
        });
        Self {
            url,
            posts,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    pub(crate) async fn new() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK").await
    }

    /// All spans that were posted to a path, in order.
    pub(crate) fn spans(&self) -> Vec<Value> {
        let posts = self.posts.lock().unwrap();
        let traces = posts.iter().filter(|(path, _)| path == "/api/traces");
        traces
            .flat_map(|(_, body)| body["spans"].as_object().unwrap().values().cloned())
            .collect()
    }
}

async fn take(
    mut stream: TcpStream,
    answer: &str,
    kept: &Mutex<Vec<(String, Value)>>,
) -> std::io::Result<()> {
    let mut text = Vec::new();
    let mut buffer = vec![0; 65536];
    loop {
        let read = stream.read(&mut buffer).await?;
        text.extend_from_slice(&buffer[..read]);
        let whole = String::from_utf8_lossy(&text);
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) || read == 0 {
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                kept.lock()
                    .unwrap()
                    .push((path, serde_json::from_str(body).unwrap_or(json!(null))));
                break;
            }
        }
        if read == 0 {
            break;
        }
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.flush().await
}
