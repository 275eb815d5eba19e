//! The program, run as people and scripts run it: against a server in the test, and on stores in a folder of the test.
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod chatting;
mod failures;
mod flows_and_agents;
mod new_project;
mod runs;
mod sessions;
mod shells;
mod support;
