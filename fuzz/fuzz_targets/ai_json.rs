//! Reads arbitrary texts of models, whole and as they grow: `cargo fuzz run ai_json`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-ai/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, Vec<usize>)| fuzz_entry::read_json(input.0, &input.1));
