//! All integration tests in one program, because each further program is linked and stored separately.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod over_a_socket;
mod over_http;
mod support;
mod trace_log;
mod trace_server_faults;
