#![doc = include_str!("docs/overview.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

mod adapter;
mod archive_access;
mod authenticated;
mod body;
mod call;
mod context_provider;
mod correlation;
#[doc(hidden)]
pub mod decoders;
mod driven;
mod durable;
mod envelope;
mod error_body;
mod event;
mod extensions;
mod handler;
mod hex;
mod hosts;
mod layout;
mod limits;
mod listen_address;
mod metrics;
mod openapi;
mod operations;
mod permits;
mod pieces;
mod requests;
mod route;
mod running;
mod serve;
mod served_agent;
mod served_turn;
mod server;
mod shutdown;
mod sse_response;
mod streaming;
mod timed_io;
mod trace;
mod turn_name;
mod websocket;

pub use self::adapter::{Audience, ProtocolAdapter, ServedAgents, ServerStreamLog, exposure_of};
pub use self::archive_access::ArchiveAccess;
pub use self::authenticated::FromCall;
pub use self::context_provider::{ApiKeys, BearerTokens, CallRequest, ContextProvider, Provided, context_fn};
#[cfg(feature = "jwt")]
pub use self::context_provider::{Jwks, JwtTokens, PrincipalId};
pub use self::error_body::json_response;
pub use self::hex::{hex, text_of_hex};
pub use self::layout::Layout;
pub use self::limits::Limits;
pub use self::listen_address::ListenAddress;
pub use self::route::{Route, RouteKind};
pub use self::serve::Bound;
pub use self::served_agent::ServedAgent;
pub use self::served_turn::ServedTurn;
pub use self::server::Server;
pub use self::shutdown::{AfterGrace, Grace, ServerHandle};
pub use self::sse_response::sse_response;
pub use self::turn_name::turn_name;
pub use self::websocket::WebSockets;

pub use everturn_core::Principal;

// Types of other crates that stand in signatures here: routers, headers and methods are axum's.
pub use axum;
pub use tower_http::cors::CorsLayer;
