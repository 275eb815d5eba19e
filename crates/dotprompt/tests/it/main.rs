//! Everything that is tested from outside, in one program: each further one is linked and stored anew.

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
