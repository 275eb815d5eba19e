//! All integration tests in one program, because each further program is linked and stored separately. Next
//! to this folder, `traces.rs` is another program: its tests need a subscriber on every thread.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod agent_protocol;
mod anonymous_callers;
mod bounded_memory;
mod client_permissions;
mod combined_providers;
mod decoder_properties;
mod durable_streams;
mod erasing;
mod flow_protocol;
#[path = "../fuzz_entry/mod.rs"]
mod fuzz_entry;
mod host_names;
mod hostile_input;
mod hostile_requests;
mod json_web_tokens;
mod kept_failures;
mod mounting;
mod operator_routes;
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
mod websocket_conversations;
mod who_may_do_what;
