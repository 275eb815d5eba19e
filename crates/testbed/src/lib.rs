//! The agents of the published conformance cases, and the runner of those cases.
//!
//! Every implementation of the agent protocol has the same [harness](harness()): a dozen small agents with
//! agreed names, around one model that a case programs. The [runner](conformance) uses them through an
//! [`AgentTransport`](everturn_agent::AgentTransport), so the same cases check any store and any transport.
//!
//! ```
//! use everturn_agent::store::MemoryStore;
//! use serde_json::json;
//! use testbed::{conformance, harness};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
//! let case = json!({
//!     "name": "an answer",
//!     "agent": "promptAgent",
//!     "steps": [{
//!         "type": "send",
//!         "inputs": [{"message": {"role": "user", "content": [{"text": "hi"}]}}],
//!         "modelResponses": [{"message": {"role": "model", "content": [{"text": "hello"}]}, "finishReason": "stop"}],
//!         "expectOutput": {"finishReason": "stop", "message": {"content": [{"text": "hello"}]}},
//!     }],
//! });
//!
//! let verdict = conformance::run(&case, &harness(MemoryStore::new())?).await;
//!
//! assert_eq!(verdict, Ok(()));
//! # Ok(()) }
//! ```
#![allow(clippy::disallowed_methods, reason = "work takes its time")]

mod agents;
pub mod conformance;
mod harness;
mod programmable_model;
pub mod worker;

pub use self::agents::{harness, watched_harness};
pub use self::harness::Harness;
pub use self::programmable_model::ProgrammableModel;

// Only in the documentation, where every path of the page is a link that must resolve.
#[cfg(doc)]
#[doc = include_str!("../../../docs/design-map.md")]
pub mod design_map {}
