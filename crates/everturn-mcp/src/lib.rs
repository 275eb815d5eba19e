//! The Model Context Protocol (MCP), as a client and as a server.
//!
//! As a client, an application registers the tools, prompts and resources of MCP servers ([`McpServers`]). As
//! a server, it offers its tools, prompts, resources and agents to MCP clients ([`McpServer`]).
//!
//! Both support the stateless version 2026-07-28 of the protocol and the earlier versions with a handshake.
//!
//! | to | see |
//! |---|---|
//! | use a server: a local program, or an address | [`StdioServer`], [`HttpServer`], [`McpServers::stream`] |
//! | answer requests of older servers | [`McpServers::on_elicitation`], [`McpServers::on_sampling`] |
//! | list the connected servers | [`Connections`] |
//! | serve over standard input and output | [`McpServer::serve_stdio`] |
//! | serve over HTTP, with authentication | feature `http`: mount an [`McpServer`] on an `everturn_server::Server` |
//!
//! | feature | adds |
//! |---|---|
//! | `http` | the MCP server at a path of Everturn's HTTP server |
//! | `opentelemetry` | sends the trace context of a call to the called server |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

mod content;
mod endpoint;
mod fault;
mod handler;
mod question;
mod remote_server;
mod server;
mod servers;
mod settings;

pub use self::endpoint::{ByteStream, HttpServer, StdioServer};
pub use self::server::McpServer;
pub use self::servers::{Connections, McpServers};
pub use self::settings::{Answer, Elicitation, Sampled, Sampling};
