//! Whole conversations on one WebSocket. The protocol is described in `docs/websocket.md`.

mod conversation;
mod frame;
mod intake;
mod options;
mod outgoing;
mod socket;
mod upgrade;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;

pub use self::options::WebSockets;
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
