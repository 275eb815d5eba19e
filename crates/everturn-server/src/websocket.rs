//! Whole conversations on one WebSocket, and its settings. The protocol is described in `docs/websocket.md`.

mod conversation;
mod frame;
mod socket;
mod upgrade;

use std::time::Duration;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;

pub(crate) use self::upgrade::{Endpoint, converse};

/// The version of the protocol, as a subprotocol.
pub(crate) const PROTOCOL: &str = "everturn.v1";

/// The connection. It is not axum's, whose WebSocket does not let a peer be read from after a frame that is
/// too large.
type Stream = WebSocketStream<TokioIo<Upgraded>>;

/// Returns whether a text is a frame that a client may send.
pub(crate) fn is_frame(text: &str) -> bool {
    frame::ClientFrame::parse(text).is_ok()
}

/// The settings of a WebSocket, on which a client holds conversations with an agent.
///
#[doc = include_str!("docs/websocket.md")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct WebSockets {
    ping_every: Duration,
    idle_time: Duration,
    control_frames: u32,
    origins: Vec<String>,
}

impl Default for WebSockets {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_secs(20),
            idle_time: Duration::from_mins(15),
            control_frames: 1_000,
            origins: Vec::new(),
        }
    }
}

impl WebSockets {
    /// Sets how often the server sends a ping; every 20 seconds by default.
    pub fn ping_every(mut self, interval: Duration) -> Self {
        // A timer needs an interval longer than zero.
        self.ping_every = interval.max(Duration::from_millis(1));
        self
    }

    everturn_core::setters! {
        /// Sets how long a connection may be silent; 15 minutes by default. A turn that works in silence for
        /// longer is ended with the connection: detach such turns.
        pub fn idle_time(mut self, time: Duration) { self.idle_time = time }

        /// Sets how many pings and pongs a client may send between two pings of the server; 1,000 by default.
        /// A client that sends more is closed with 1008.
        pub fn control_frames(mut self, frames: u32) { self.control_frames = frames }

        /// Allows pages of an origin, such as `https://kitchen.example`, to open connections. Pages of the
        /// server's own origin and clients other than browsers are always allowed.
        pub fn origin(mut self, origin: impl Into<String>) { self.origins.push(origin.into()) }
    }

    /// Returns the origins that were allowed.
    pub(crate) fn origins(&self) -> &[String] {
        &self.origins
    }

    /// Returns whether a page of an origin may open a connection to a server with that host name.
    fn allows(&self, origin: &str, host: Option<&str>) -> bool {
        let own = origin.split_once("://").map(|(_, host)| host);
        let is_own = own.is_some()
            && own
                .zip(host)
                .is_some_and(|(own, host)| own.eq_ignore_ascii_case(host));
        is_own
            || self
                .origins
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_origins_are_refused_unless_allowed() {
        let settings = WebSockets::default().origin("https://kitchen.example");

        assert!(settings.allows("http://localhost:8080", Some("localhost:8080")));
        assert!(settings.allows("https://kitchen.example", Some("api.example")));
        assert!(!settings.allows("https://evil.example", Some("api.example")));
        assert!(!settings.allows("null", Some("null")));
        assert!(!settings.allows("https://api.example", None));
    }
}
