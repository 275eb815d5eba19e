//! All integration tests in one program, because each further program is linked and stored separately.

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
