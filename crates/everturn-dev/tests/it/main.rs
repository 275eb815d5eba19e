//! Everything that is tested from outside, in one program: each further one is linked and stored anew.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod over_a_socket;
mod over_http;
mod support;
mod trace_log;
mod trace_server_faults;
