//! Reads arbitrary inputs, outputs, chunks and rows of agents: `cargo fuzz run agent_wire`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-agent/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzz_entry::read_wire(bytes));
