//! Everything that is tested from outside, in one program: each further one is linked and stored anew.
//! Files beside this folder are programs of their own: they measure memory, or listen to every span of a process.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod agent_protocol;
mod anonymous_callers;
mod bounded_memory;
mod client_permissions;
mod combined_providers;
mod decoders;
mod durable_streams;
mod erasing;
mod flow_protocol;
#[path = "../fuzz_entry/mod.rs"]
mod fuzz_entry;
mod host_names;
mod hostile_requests;
mod json_web_tokens;
mod kept_failures;
mod mounting;
mod operations;
mod private_text_stays_inside;
mod protocol_adapters;
mod readers_and_leavers;
mod recovered_runs;
mod repeated_requests;
mod seen_by_operators;
mod strict_clients;
mod support;
mod the_end_of_a_server;
mod timelines;
mod values_of_a_call;
mod watching_runs;
mod websocket;
mod who_may_do_what;
