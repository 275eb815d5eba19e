//! Whole conversations on one WebSocket. The protocol is described in `docs/websocket.md`.

mod conversation;
mod frame;
mod intake;
mod options;
mod socket;
mod upgrade;

pub use self::options::WebSockets;
pub(crate) use self::upgrade::{Endpoint, converse};

/// The version of the protocol, as a subprotocol.
pub(crate) const PROTOCOL: &str = "everturn.v1";

/// Whether a client may say this.
pub(crate) fn is_frame(text: &str) -> bool {
    frame::ClientFrame::parse(text).is_ok()
}
