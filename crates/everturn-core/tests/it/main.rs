//! All integration tests in one program, because each further program is linked separately. Tests that
//! need the process for themselves are in `alone`.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod action_json_boundary;
mod bidi_json;
mod connection_backpressure;
mod connection_cancel;
mod connection_close_and_drain;
mod connection_drop;
mod connection_leaked_emitter;
mod connection_panic;
mod connection_receive;
mod connection_send_after_end;
mod context_isolation;
mod flows;
mod registry_lookup;
mod registry_plugins;
mod span_listeners;
mod stream_log_memory;
mod support;
