//! All integration tests in one program, because each further program is linked separately.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod conformance;
mod differential;
mod errors;
#[path = "../fuzz_entry/mod.rs"]
mod fuzz_entry;
mod helpers;
mod limits;
mod metadata;
mod partials;
mod properties;
mod rendering;
mod store;
