//! The reflection API over a WebSocket, version 2: the program is the client, and the tools call it back.
//!
//! Messages are JSON-RPC 2.0. Both sides number their requests independently; an id is a string, and is
//! returned unchanged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Error, Result, Status};
use futures::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, http::Uri};

use crate::runs::{RunRequest, Runs};
use crate::wire;

/// The shortest and the longest delay between attempts to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The longest message. The tools send each in one frame, and their own limit for an input is 30 MB.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// The id of the only request of the program.
const REGISTER: &str = "1";

/// The program's side of the connection.
pub(crate) struct ReflectionSocket {
    pub(crate) server: String,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) runs: Runs,
}

impl ReflectionSocket {
    /// Serves the tools, and reconnects whenever the connection is lost.
    pub(crate) async fn serve(self) {
        let mut wait = RETRY.0;
        loop {
            let connected = self.connect().await;
            if connected {
                wait = RETRY.0;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY.1);
        }
    }

    /// Serves one connection until it is lost. Returns whether the connection was established.
    async fn connect(&self) -> bool {
        let Ok(mut socket) = self.open().await else {
            return false;
        };
        let register = json!({ "jsonrpc": "2.0", "id": REGISTER, "method": "register", "params": {
            "id": self.id,
            "pid": std::process::id(),
            "name": self.name,
            "genkitVersion": wire::VERSION,
            "reflectionApiSpecVersion": 1,
            "envs": ["dev"],
        } });
        if socket.send(Message::text(register.to_string())).await.is_err() {
            return false;
        }
        let (mut sink, mut source) = socket.split();
        let (outgoing, mut queue) = mpsc::channel::<String>(64);
        let session = Session {
            runs: self.runs.clone(),
            outgoing,
            inputs: Arc::default(),
        };
        // Each request runs in a task that ends with the connection; the actions it started continue.
        let mut requests = JoinSet::new();
        // Writing is concurrent with reading, so that tools that do not read for a while do not block their
        // own messages.
        let writing = async {
            while let Some(text) = queue.recv().await {
                if sink.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
        };
        tokio::pin!(writing);
        loop {
            tokio::select! {
                () = &mut writing => break,
                message = source.next() => match message {
                    Some(Ok(Message::Text(text))) => session.receive(text.as_str(), &mut requests),
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                    // The library answers pings.
                    Some(Ok(_)) => {}
                },
                Some(_) = requests.join_next() => {}
            }
        }
        true
    }

    async fn open(&self) -> Result<tokio_tungstenite::WebSocketStream<TcpStream>> {
        let unusable = || {
            Error::invalid_argument(format!(
                "'{}' is not an address of the form ws://host:port",
                self.server
            ))
        };
        let uri: Uri = self.server.parse().map_err(|_| unusable())?;
        let authority = uri.authority().ok_or_else(unusable)?;
        let host = authority.host().trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80)))
            .await
            .map_err(|error| Error::unavailable(error.to_string()))?;
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let (socket, _) = client_async_with_config(self.server.as_str(), stream, Some(limits))
            .await
            .map_err(|error| Error::unavailable(error.to_string()))?;
        Ok(socket)
    }
}

/// A message of the tools: a request, a notification, or a response.
#[derive(Deserialize)]
struct Incoming {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    result: Option<Value>,
}

/// One connection.
#[derive(Clone)]
struct Session {
    runs: Runs,
    outgoing: mpsc::Sender<String>,
    /// The open input streams, by the id of their request. Their queues are unbounded, because the reading
    /// task must never wait for an action, and inputs are typed by a developer.
    inputs: Arc<Mutex<HashMap<String, mpsc::UnboundedSender<Value>>>>,
}

impl Session {
    /// Handles a message. Only work that depends on the order of messages happens here.
    fn receive(&self, text: &str, requests: &mut JoinSet<()>) {
        let Ok(message) = serde_json::from_str::<Incoming>(text) else {
            return;
        };
        let Some(method) = message.method else {
            if let Some(url) = message
                .result
                .as_ref()
                .and_then(|result| result["telemetryServerUrl"].as_str())
            {
                self.runs.exporter().use_server(url);
            }
            return;
        };
        match (method.as_str(), message.id) {
            ("sendInputStreamChunk", _) => self.feed(&message.params),
            ("endInputStream", _) => {
                if let Some(request) = message.params["requestId"].as_str() {
                    self.inputs.lock().remove(request);
                }
            }
            ("configure", _) => {
                if let Some(url) = message.params["telemetryServerUrl"].as_str() {
                    self.runs.exporter().use_server(url);
                }
            }
            (_, Some(id)) => {
                let this = self.clone();
                // Inputs may follow immediately, so their queue exists before the first await.
                let inputs = (method == "runAction" && message.params["streamInput"] == true).then(|| {
                    let (sender, receiver) = mpsc::unbounded_channel();
                    this.inputs.lock().insert(request_id(&id), sender);
                    receiver
                });
                requests.spawn(async move { this.answer(&method, id, message.params, inputs).await });
            }
            (_, None) => {}
        }
    }

    fn feed(&self, params: &Value) {
        let Some(request) = params["requestId"].as_str() else {
            return;
        };
        if let Some(inputs) = self.inputs.lock().get(request) {
            // A finished run accepts no more inputs.
            let _ = inputs.send(params["chunk"].clone());
        }
    }

    async fn answer(
        self,
        method: &str,
        id: Value,
        params: Value,
        inputs: Option<mpsc::UnboundedReceiver<Value>>,
    ) {
        let registry = self.runs.registry();
        let answer = match method {
            "listActions" => match wire::actions(registry).await {
                Ok(actions) => Ok(json!({ "actions": actions })),
                Err(error) => Err(RpcError::run(&error)),
            },
            "listValues" => {
                let kind = params["type"].as_str().unwrap_or_default();
                match wire::values(registry, kind) {
                    Some(values) => Ok(json!({ "values": values })),
                    None => Err(RpcError::invalid(&format!("'{kind}' is no type of values"))),
                }
            }
            "cancelAction" => match params["traceId"].as_str() {
                Some(trace) if self.runs.cancel(trace) => Ok(json!({ "message": "Action cancelled" })),
                _ => Err(RpcError::invalid("Action not found or already completed")),
            },
            "runAction" => self.run(&id, params, inputs).await,
            _ => Err(RpcError {
                code: -32601,
                message: format!("there is no method '{method}'"),
                data: None,
            }),
        };
        self.inputs.lock().remove(&request_id(&id));
        let answer = match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error.into_json() }),
        };
        self.send(&answer).await;
    }

    async fn run(
        &self,
        id: &Value,
        params: Value,
        inputs: Option<mpsc::UnboundedReceiver<Value>>,
    ) -> std::result::Result<Value, RpcError> {
        let request: RunRequest = serde_json::from_value(params)
            .map_err(|error| RpcError::invalid(&format!("the request cannot be read: {error}")))?;
        let mut run = self.runs.start(request, inputs).await.map_err(|error| {
            if error.status() == Status::NotFound {
                RpcError {
                    code: -32602,
                    ..RpcError::run(&error)
                }
            } else {
                RpcError::run(&error)
            }
        })?;
        // The tools address inputs by the trace, so its id is sent first.
        if let Ok(ids) = (&mut run.started).await {
            let state = json!({ "traceId": ids.trace.to_string() });
            self.notify("runActionState", json!({ "requestId": id, "state": state }))
                .await;
        }
        while let Some(chunk) = run.chunks.recv().await {
            let chunk: Value = chunk.read().map_err(|error| RpcError::run(&error))?;
            self.notify("streamChunk", json!({ "requestId": id, "chunk": chunk }))
                .await;
        }
        let ended = run
            .ended
            .await
            .map_err(|_| RpcError::run(&Error::cancelled("the program ends")))?;
        match ended.result {
            Ok(value) => Ok(wire::result(&value, ended.ids)),
            Err(error) => Err(RpcError::failed(wire::failure(&error, ended.ids))),
        }
    }

    async fn notify(&self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            .await;
    }

    async fn send(&self, message: &Value) {
        // The connection may be lost; the tools repeat the request over the next one.
        let _ = self.outgoing.send(message.to_string()).await;
    }
}

/// The id of a request, as used by inputs.
fn request_id(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// A JSON-RPC error. The tools print `data`.
struct RpcError {
    code: i32,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    fn invalid(message: &str) -> Self {
        Self {
            code: -32602,
            ..Self::run(&Error::invalid_argument(message))
        }
    }

    fn run(error: &Error) -> Self {
        Self::failed(wire::failure(error, None))
    }

    fn failed(failure: Value) -> Self {
        Self {
            code: -32000,
            message: failure["message"].as_str().unwrap_or_default().to_owned(),
            data: Some(failure),
        }
    }

    fn into_json(self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = self.data {
            error["data"] = data;
        }
        error
    }
}
