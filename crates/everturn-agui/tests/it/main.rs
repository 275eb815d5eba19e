//! The protocol as clients see it, over HTTP.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod client_permissions;
mod connecting;
mod erasing;
mod front_end_tools;
mod histories;
mod hostile_requests;
mod interrupts;
mod kept_by_the_client;
mod leaving;
mod long_threads;
mod other_protocols;
mod repeated_requests;
mod runs;
mod shared_state;
mod support;
