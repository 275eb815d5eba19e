//! Reads arbitrary messages of peers: `cargo fuzz run ai_message`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-ai/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| fuzz_entry::read_message(message));
