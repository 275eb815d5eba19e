//! The real program, in one program of tests: each further one is linked and stored anew.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod chatting;
mod choosing_a_model;
mod program;
mod real_model;
mod serving;
