//! Reads arbitrary texts from WebSockets: `cargo fuzz run server_frame`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-server/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| fuzz_entry::read_frame(text));
