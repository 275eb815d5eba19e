//! All integration tests in one program, because each further program is linked and stored separately.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod chatting;
mod choosing_a_model;
mod program;
mod real_model;
mod serving;
