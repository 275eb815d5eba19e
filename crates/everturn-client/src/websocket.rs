//! Whole conversations on one WebSocket.
//!
//! ```text
//! AgentSocket ──► ConnectionHandle ──► ConnectionTask, which owns the connection ──► the server
//! ```
//!
//! The task ends with the connection, or when its last handle is dropped.

mod agent_socket;
mod connection_handle;
mod connection_task;
mod event_queue;
mod frame;
mod handshake;

pub use self::agent_socket::AgentSocket;

/// The version of the protocol, as a subprotocol.
const PROTOCOL: &str = "everturn.v1";

/// Returns whether a text is a server's frame of a kind that this version supports.
pub(crate) fn is_frame(text: &str) -> everturn_core::Result<bool> {
    Ok(!matches!(
        frame::ServerFrame::parse(text)?,
        frame::ServerFrame::Unknown
    ))
}
