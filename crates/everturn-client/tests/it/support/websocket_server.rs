//! A loopback WebSocket server with scripted behaviour.

use std::future::Future;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

/// The server's end of a connection.
pub(crate) type Peer = WebSocketStream<TcpStream>;

/// A server with a script for its first, its second and all later connections.
pub(crate) struct WebSocketServer {
    pub(crate) url: String,
    serving: JoinHandle<()>,
}

impl WebSocketServer {
    pub(crate) async fn start<F, Fut>(serve: F) -> Self
    where
        F: Fn(usize, Peer) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/agent", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let mut connections = 0;
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(peer) = accept_hdr_async(stream, agree).await {
                    tokio::spawn(serve(connections, peer));
                    connections += 1;
                }
            }
        });
        Self { url, serving }
    }
}

#[expect(
    clippy::result_large_err,
    clippy::unnecessary_wraps,
    reason = "what the handshake asks for"
)]
fn agree(
    _: &Request,
    mut response: Response,
) -> Result<Response, tokio_tungstenite::tungstenite::handshake::server::ErrorResponse> {
    let protocol = "everturn.v1".parse().unwrap();
    response.headers_mut().insert("sec-websocket-protocol", protocol);
    Ok(response)
}

impl Drop for WebSocketServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Sends a text; the client may have disconnected.
pub(crate) async fn say(peer: &mut Peer, frame: Value) {
    let _ = peer.send(Message::text(frame.to_string())).await;
}

/// Sends a chunk with a text of the model.
pub(crate) async fn chunk(peer: &mut Peer, text: &str) {
    say(
        peer,
        json!({ "message": { "modelChunk": { "role": "model", "content": [{ "text": text }] } } }),
    )
    .await;
}

/// Waits for a frame of that name from the client.
pub(crate) async fn wait_for(peer: &mut Peer, name: &str) -> Option<Value> {
    while let Some(Ok(message)) = peer.next().await {
        if let Message::Text(text) = message
            && let Some(value) = serde_json::from_str::<Value>(&text).unwrap().get(name)
        {
            return Some(value.clone());
        }
    }
    None
}

/// Responds to every conversation with one chunk and an output.
pub(crate) async fn behave(mut peer: Peer) {
    while wait_for(&mut peer, "init").await.is_some() {
        wait_for(&mut peer, "close").await;
        chunk(&mut peer, "soup").await;
        let message = json!({ "role": "model", "content": [{ "text": "soup" }] });
        say(
            &mut peer,
            json!({ "result": { "message": message, "finishReason": "stop", "sessionId": "s" } }),
        )
        .await;
    }
}
