//! Matches arbitrary addresses with arbitrary templates: `cargo fuzz run ai_resource`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-ai/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| fuzz_entry::match_resource(input.0, input.1));
