//! All integration tests in one program, because each further program is linked and stored separately.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod conformance_over_http;
mod event_splits;
mod everturn_server;
mod framing_variants;
#[path = "../fuzz_entry/mod.rs"]
mod fuzz_entry;
mod javascript_server;
mod new_sessions;
mod reading_and_watching;
mod reconnection;
mod refusals;
mod remote_archive;
mod requests;
mod support;
mod typed_agents;
mod websocket;
mod websocket_hostile;
