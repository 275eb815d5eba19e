//! Remote agents and flows, used like those in this process.
//!
//! A [`RemoteAgent`] has the methods of an [`Agent`](everturn_agent::Agent): the same chats, turns, tasks,
//! interrupts and replies, over HTTP. It works with Everturn servers, and with Genkit servers in other
//! languages.
//!
//! ```
//! use everturn_client::RemoteAgent;
//! # use everturn_agent::{AgentSession, custom_agent, store::MemoryStore};
//! # use everturn_ai::{FinishReason, Message};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
//! # let registry = everturn_core::Registry::new();
//! # custom_agent(&registry, "chef", |session: AgentSession| async move {
//! #     session.run(|turn| async move {
//! #         turn.send_chunk("Leek soup.").await?;
//! #         turn.add_message(Message::model("Leek soup."));
//! #         Ok(FinishReason::Stop)
//! #     }).await?;
//! #     Ok(session.result())
//! # }).store(MemoryStore::new()).define()?;
//! # let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
//! # let server = everturn_server::Server::new(&registry).bind(local).await?;
//! # let address = server.address();
//! # let serving = tokio::spawn(server.run());
//! // What `app.serve(…)` serves, on another machine.
//! let chef: RemoteAgent = RemoteAgent::new(&format!("http://{address}/agents/chef"))?;
//!
//! let reply = chef.run_text("Something with leeks?").await?;
//! assert_eq!(reply.text(), "Leek soup.");
//!
//! let mut chat = chef.chat().resume(reply.session_id()).open().await?;
//! let mut turn = chat.send("And without butter?").await?;
//! while let Some(chunk) = turn.next().await {
//!     print!("{}", chunk?.text());
//! }
//! turn.output().await?;
//!
//! let task = chat.detach("Plan the whole week").await?;
//! let week = task.wait().await?;
//! assert_eq!(chef.get_snapshot(task.snapshot_id()).await?.session_id.as_ref(), week.session_id());
//! # serving.abort();
//! # Ok(()) }
//! ```
//!
//! # What happens when something breaks
//!
//! - The server cannot be reached: the request is retried; see [`Retries`].
//! - The connection breaks during a turn: if the server keeps the stream, the turn continues over another
//!   connection. Otherwise the turn fails with `UNAVAILABLE` and [`STREAM_BROKEN`]; it is never sent twice.
//! - The server no longer has the stream: `NOT_FOUND`.
//! - Reading or aborting fails on the network: the request is retried.
//! - The connection breaks while a background run is watched: `UNAVAILABLE` with [`STREAM_BROKEN`]. The run
//!   continues, and can be watched again.
//! - A background run loses its worker: the client waits for a takeover; see
//!   [`ClientBuilder::takeover_patience`].
//! - The server rejects the request: an error with the server's status, message and details.
//!
//! | to | see |
//! |---|---|
//! | use an agent | [`RemoteAgent`] |
//! | hold whole conversations on one connection (feature `websocket`) | `AgentSocket` |
//! | run a flow | [`RemoteFlow`], [`FlowStream`] |
//! | send credentials, set limits | [`Client`], [`ClientBuilder`] |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(clippy::disallowed_methods, reason = "leases and retries take real time")]

mod client;
mod event_stream;
mod events;
mod headers;
mod remote_agent;
mod remote_flow;
mod request;
mod retries;
mod stop;
#[cfg(feature = "websocket")]
mod websocket;
mod wire_error;

// `everturn_core::install_tls_provider` comes before a client of its own.
pub use reqwest;
pub use reqwest::header::HeaderMap;

pub use self::client::{Client, ClientBuilder};
pub use self::event_stream::STREAM_BROKEN;
pub use self::remote_agent::{RemoteAgent, RemoteArchive};
pub use self::remote_flow::{FlowStream, RemoteFlow};
pub use self::retries::Retries;
#[cfg(feature = "websocket")]
pub use self::websocket::AgentSocket;

/// The parsers, for fuzzing and property tests.
#[doc(hidden)]
pub mod framing {
    use everturn_core::sse::Record;
    use everturn_core::{Error, Result};
    use serde_json::Value;

    /// Returns whether a record is an event of a known kind.
    ///
    /// # Errors
    /// `INTERNAL` if it does not conform to this protocol.
    pub fn is_event(record: &Record) -> Result<bool> {
        Ok(crate::events::Event::of(record)?.is_some())
    }

    /// Returns the result in a reply.
    ///
    /// # Errors
    /// The error in the reply; `INTERNAL` if it does not conform to this protocol.
    pub fn result(body: &[u8]) -> Result<Value> {
        crate::request::result_in(body)
    }

    /// Returns whether a frame is of a known kind.
    ///
    /// # Errors
    /// `INTERNAL` if it does not conform to this protocol.
    #[cfg(feature = "websocket")]
    pub fn is_frame(text: &str) -> Result<bool> {
        crate::websocket::is_frame(text)
    }

    /// Returns the error of a rejected request.
    pub fn refusal(code: u16, is_page: bool, body: &[u8]) -> Option<Error> {
        let code = reqwest::StatusCode::from_u16(code).ok()?;
        let body = bytes::Bytes::copy_from_slice(body);
        Some(crate::wire_error::refusal(code, is_page, &body))
    }
}
