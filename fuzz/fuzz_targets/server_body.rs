//! Reads arbitrary bodies of requests: `cargo fuzz run server_body`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-server/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| fuzz_entry::read_body(body));
