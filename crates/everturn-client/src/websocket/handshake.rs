//! The WebSocket handshake.
//!
//! The HTTP client of all other requests performs it, so that certificates, proxies and credentials apply.

use everturn_core::{Context, Error, Result};
use reqwest::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{Response, StatusCode, Upgraded, Url, Version};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::PROTOCOL;
use crate::client::Settings;
use crate::request::{Failed, FailureKind, Repeat, shown};

/// A connection after the handshake.
pub(super) type Socket = WebSocketStream<Upgraded>;

impl Settings {
    /// Opens a connection, with retries.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if the server offers no WebSocket; the server's own error; `UNAVAILABLE` if it cannot
    /// be reached.
    pub(super) async fn open_socket(&self, url: &Url, context: &Context) -> Result<Socket> {
        let mut failures = 0;
        loop {
            match self.handshake(url, context).await {
                Ok(socket) => return Ok(socket),
                // A handshake does not call the agent, so it can always be repeated.
                Err(failed) => self.wait_after(failed, &mut failures, Repeat::Always).await?,
            }
        }
    }

    async fn handshake(&self, url: &Url, context: &Context) -> Result<Socket, Failed> {
        let refused = |error| Failed::new(FailureKind::Refused, error);
        let key = generate_key();
        let mut headers = self.headers.get(context).await.map_err(refused)?;
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        let sent_key = HeaderValue::from_str(&key).map_err(|error| refused(Error::foreign(error)))?;
        headers.insert(SEC_WEBSOCKET_KEY, sent_key);
        let request = self
            .http
            .get(url.clone())
            // An upgrade does not exist in HTTP/2.
            .version(Version::HTTP_11)
            .headers(headers);
        let asking = self.head(url, request);
        let response = match tokio::time::timeout(self.timeout, asking).await {
            Ok(response) => response?,
            Err(_) => return Err(crate::request::out_of_time(url, self.timeout)),
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.not_opened(url, response).await);
        }
        // The 101 may be that of a proxy, or of a server with another protocol.
        if !is_agreed(&response, &key) {
            return Err(refused(not_offered(url, "it agreed to another protocol")));
        }
        let upgraded = response.upgrade().await;
        let upgraded = upgraded.map_err(|error| refused(not_offered(url, &error.to_string())))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(self.max_bytes))
            .max_frame_size(Some(self.max_bytes));
        Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
    }

    /// Returns why a server that answered has not opened a connection.
    async fn not_opened(&self, url: &Url, response: Response) -> Failed {
        let code = response.status();
        let is_other = matches!(
            code,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::UPGRADE_REQUIRED
        );
        // These codes mean that the server has no WebSocket here, not that this caller may not use it.
        if !is_other && !code.is_success() && !code.is_redirection() {
            return self.refused(response).await;
        }
        let refusal = self.refused(response).await.error;
        Failed::new(
            FailureKind::Refused,
            not_offered(url, &format!("{code}, {}", refusal.message())),
        )
    }
}

/// Returns whether the server has accepted this protocol and this request's key.
fn is_agreed(response: &Response, key: &str) -> bool {
    let is = |name, value: &str| {
        let header = response.headers().get(name);
        header.is_some_and(|header: &HeaderValue| header.as_bytes() == value.as_bytes())
    };
    is(SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes())) && is(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
}

fn not_offered(url: &Url, answer: &str) -> Error {
    Error::unimplemented(format!(
        "{} does not offer the WebSocket protocol '{PROTOCOL}' ({answer}): use HTTP for this agent",
        shown(url)
    ))
}
