//! The program, run against a server in the test process and on stores in a temporary folder.
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod chatting;
mod failures;
mod flows_and_agents;
mod new_project;
mod recordings;
mod runs;
mod sessions;
mod shells;
mod support;
