//! All integration tests in one program, because each further program is linked separately.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod agents_as_tools;
mod lists_that_change;
mod old_servers;
mod over_http;
mod progress_and_cancellation;
mod prompts_and_resources;
mod questions_become_interrupts;
mod real_peers;
mod servers_that_go_away;
mod support;
mod tools_of_a_server;
