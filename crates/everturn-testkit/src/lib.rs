//! Tools for testing agents and stores, used by Everturn's own tests and published for yours.
//!
//! | to | see |
//! |---|---|
//! | script the model's replies and check its requests | [`ScriptedModel`], [`Reply`] |
//! | pause a reply to test a race without sleeping | [`Gate`] |
//! | use the simplest model | [`EchoModel`] |
//! | demonstrate tools and structured output without a network | [`OfflineModel`] |
//! | test with the answers of a real model without calling it each time | [`Recorder`], [`Replayer`] |
//! | test a tool that works on a session | [`with_session`] |
//! | certify a store | [`certify`] |
//! | certify a stream log | [`certify::streams`] |
//! | check that providers accept a request | [`provider_rules`] |
//! | test that a store keeps histories through random programs | [`histories`] |
//! | test that no fault makes a session unusable | [`session_faults`] |
//! | run the published cases of the protocols | [`conformance`] |
//! | wait for an event, on a paused clock, or in real time | [`eventually`], [`in_time`], [`elapse`], [`real_pause`] |
//! | collect chunks and compare JSON | [`Collector`], [`contains`] |
//!
//! The certification kits, the random tests and the published cases belong to the feature `certify`, which is
//! on by default.
//!
//! No function but [`real_pause`] sleeps by itself. Pauses are part of a script and use tokio's clock, which a test can pause.
//!
//! ```
//! use everturn_ai::{Generate, Tool, ToolContext};
//! use everturn_core::{Registry, Result};
//! use everturn_testkit::{Reply, ScriptedModel};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let registry = Registry::new();
//! let model = ScriptedModel::new().reply(Reply::tool("double", 21)).reply("It is 42.");
//! model.register(&registry, "scripted")?;
//! let double = Tool::new("double", "Doubles a number.", |n: i64, _: ToolContext| async move { Ok(n * 2) });
//!
//! let answer = Generate::new(&registry).model("scripted").prompt("Twice 21?").tool(double).run().await?;
//!
//! assert_eq!(answer.text(), "It is 42.");
//! model.assert_asked(1, &json!({"messages": [{"content": [{"toolResponse": {"output": 42}}]}]}));
//! model.assert_finished();
//! # Ok(()) }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "scripts pause, certified stores are killed at any moment, and `eventually` polls"
)]

mod cassette;
#[cfg(feature = "certify")]
pub mod certify;
mod collector;
#[cfg(feature = "certify")]
pub mod conformance;
mod difference;
mod echo_model;
mod gate;
#[cfg(feature = "certify")]
pub mod histories;
mod offline_model;
#[cfg(feature = "certify")]
pub mod provider_rules;
mod recorder;
mod replayer;
mod reply;
mod scripted_model;
#[cfg(feature = "certify")]
pub mod session_faults;
mod waiting;
mod with_session;
mod words;

pub use self::{
    collector::Collector,
    difference::{Difference, contains, contains_each},
    echo_model::EchoModel,
    gate::Gate,
    offline_model::OfflineModel,
    recorder::{RecordedModel, Recorder},
    replayer::{NO_RECORDING, ReplayedModel, Replayer},
    reply::Reply,
    scripted_model::{Call, SCRIPT_OVER, ScriptedModel},
    waiting::{blocking_real_pause, elapse, eventually, in_time, real_pause},
    with_session::with_session,
};
