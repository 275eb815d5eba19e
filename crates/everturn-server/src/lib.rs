#![doc = include_str!("docs/overview.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(clippy::disallowed_methods, reason = "leases and retries take real time")]

mod action_call;
mod adapter;
mod archive_access;
mod authenticated;
mod connection;
mod context_provider;
mod correlation;
mod counted_body;
#[doc(hidden)]
pub mod decoders;
mod error_body;
mod event;
mod handler;
mod hosts;
mod layout;
mod limits;
mod listen_address;
mod logged_calls;
mod metrics;
mod openapi;
mod operations;
mod permits;
mod request_body;
mod route;
mod serve;
mod server;
mod shutdown;
mod websocket;

pub use self::adapter::{
    Audience, CallAnswers, CallerStreams, EncodedTurn, EventEncoder, MessagePosition, ProtocolAdapter,
    RecordedStream, ServedAgent, ServedAgents, ServedTurn, ServerStreamLog, TurnChunks, TurnPlan,
    WaitingCall, WaitingKind, exposure_of, messages_of, sse_response, text_of_hex, turn_name,
    waiting_message, with_waiting_calls,
};
pub use self::archive_access::ArchiveAccess;
pub use self::authenticated::FromCall;
pub use self::context_provider::{ApiKeys, BearerTokens, CallRequest, ContextProvider, Provided, context_fn};
#[cfg(feature = "jwt")]
pub use self::context_provider::{Jwks, JwtTokens, PrincipalId};
pub use self::error_body::json_response;
pub use self::layout::Layout;
pub use self::limits::Limits;
pub use self::listen_address::ListenAddress;
pub use self::route::{Route, RouteKind};
pub use self::serve::Bound;
pub use self::server::Server;
pub use self::shutdown::{AfterGrace, Grace, ServerHandle};
pub use self::websocket::WebSockets;

pub use everturn_core::Principal;

// Types of other crates that stand in signatures here: routers, headers and methods are axum's.
pub use axum;
pub use tower_http::cors::CorsLayer;
