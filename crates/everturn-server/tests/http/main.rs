//! The server over real connections, one file per concern.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

#[path = "../support/mod.rs"]
mod support;

mod agent_protocol;
mod flow_protocol;
mod hostile_requests;
mod json_web_tokens;
mod mounting;
mod operations;
mod private_text_stays_inside;
mod readers_and_leavers;
mod recovered_runs;
mod the_end_of_a_server;
mod watching_runs;
mod who_may_do_what;
