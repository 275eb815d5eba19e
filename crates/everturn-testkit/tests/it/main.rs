//! Everything that is tested from outside, in one program: each further one is linked and stored anew.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod cassette;
mod certify;
mod certify_streams;
mod conformance;
mod echo_model;
mod histories;
mod offline_model;
mod provider_rules;
mod scripted_model;
mod session_faults;
