//! The core of Everturn, without AI: actions, connections, the registry, schemas, errors and spans.
//!
//! An **action** is a named function whose input, output and chunks are plain data with a schema. Called from
//! Rust it is typed and moves values as they are; called from a transport it takes JSON and validates it.
//!
//! A flow is your own action:
//!
//! ```
//! use everturn_core::{Registry, Result, run};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let registry = Registry::new();
//! let menu = registry.define_flow("menu", |theme: String| async move {
//!     let dish = run("invent a dish", || async { Ok(format!("{theme} soup")) }).await?;
//!     Ok(vec![dish])
//! })?;
//!
//! assert_eq!(menu.run("leek".to_owned()).await?, ["leek soup"]);
//! # Ok(()) }
//! ```
//!
//! A streaming flow sends chunks before its output:
//!
//! ```
//! use everturn_core::{Emitter, Registry, Result};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let registry = Registry::new();
//! let count = registry.define_streaming_flow("count", |to: u32, emitter: Emitter<u32>| async move {
//!     for n in 1..=to {
//!         emitter.send(n).await?;
//!     }
//!     Ok(format!("counted to {to}"))
//! })?;
//!
//! let mut counting = count.stream(3);
//! let mut seen = Vec::new();
//! while let Some(n) = counting.next().await {
//!     seen.push(n);
//! }
//! assert_eq!(seen, [1, 2, 3]);
//! assert_eq!(counting.output().await?, "counted to 3");
//! # Ok(()) }
//! ```
//!
//! A bidirectional flow is opened once, reads many inputs and ends with one output:
//!
//! ```
//! use everturn_core::{Emitter, Inputs, Registry, Result};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let registry = Registry::new();
//! let echo = registry.define_bidi_flow(
//!     "echo",
//!     |greeting: String, mut inputs: Inputs<String>, emitter: Emitter<String>| async move {
//!         let mut received = 0;
//!         while let Some(line) = inputs.next().await {
//!             emitter.send(format!("{greeting} {line}")).await?;
//!             received += 1;
//!         }
//!         Ok(received)
//!     },
//! )?;
//!
//! let mut connection = echo.connect("echo:".to_owned());
//! connection.send("hello".to_owned()).await?;
//! assert_eq!(connection.receive().next().await.as_deref(), Some("echo: hello"));
//! assert_eq!(connection.output().await?, 1);
//! # Ok(()) }
//! ```
//!
//! | to | see |
//! |---|---|
//! | call and define actions | [`Action`], [`BidiAction`], [`Connection`], [`Emitter`] |
//! | find actions by key | [`Registry`], [`Plugin`], [`Descriptor`] |
//! | read the caller, the deadline and values | [`Context`], [`Principal`], [`Scope`] |
//! | give functions a database or configuration | [`Dep`], [`FromContext`], [`Registry::provide`] |
//! | report and classify failures | [`Error`], [`HandlerError`], [`Status`], [`Reason`] |
//! | trace work in spans, and observe them | [`in_span`], [`run`], [`listen_to_spans`] |
//! | export log lines with spans | [`LogLine`] |
//! | follow a trace and a request across programs | [`TraceParent`], [`RequestId`] |
//! | let readers join or resume a stream late | [`stream_log`] |
//! | keep long computations off the runtime's threads | [`offload`] |
//! | select the cryptography of TLS | [`install_tls_provider`] |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod action;
mod bidi;
mod boundary;
mod connection;
mod context;
mod descriptor;
mod emitter;
mod error;
mod flow;
mod function;
mod hex;
mod log_line;
#[macro_use]
mod macros;
pub mod offload;
mod panic;
mod plugin;
mod principal;
mod registry;
mod request_id;
mod schema;
mod scope;
mod span;
#[doc(hidden)]
pub mod sse;
mod status;
pub mod stream_log;
mod tls;

pub use action::{Action, DynAction, JsonCall, JsonConnection, Payload, downcast};
pub use bidi::BidiAction;
pub use boundary::RefusedBy;
pub use connection::{Connection, Inputs, Receive, Sender, Streaming};
pub use context::{Context, Dep, Dependencies};
pub use descriptor::{ActionType, Descriptor, ParsedKey};
pub use emitter::{Emitter, Sending};
pub use error::{Error, Exposure, HandlerError, HandlerResult, Reason, Result, RuntimeError};
pub use flow::{BidiFlow, Flow, StreamingFlow, run};
pub use function::{FromContext, Function, Requirement};
#[doc(hidden)]
pub use hex::hex;
pub use log_line::LogLine;
pub use panic::{catch_panic, panic_error};
pub use plugin::Plugin;
pub use principal::Principal;
pub use registry::{Registry, RegistryChanges, WeakRegistry};
pub use request_id::RequestId;
pub use schema::{MAX_DEPTH, Schema, check_depth};
pub use scope::Scope;
pub use span::{
    ListeningToSpans, SpanEvent, SpanId, SpanIds, SpanInterest, SpanKind, SpanLabels, SpanLink, SpanListener,
    SpanObserver, SpanRecord, SpanRecorder, TraceId, TraceParent, in_span, listen_to_spans,
};
pub use status::{Status, UnknownStatus};
pub use tls::install_tls_provider;

// Types of other crates that appear in public signatures, re-exported so that users need no dependency on
// those crates.
pub use async_trait::async_trait;
pub use futures::Stream;
pub use futures::future::BoxFuture;
pub use futures::stream::BoxStream;
pub use schemars;
pub use serde_json;
pub use tokio_util::sync::CancellationToken;
