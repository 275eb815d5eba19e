//! Applies arbitrary patches to arbitrary documents: `cargo fuzz run agent_patch`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-agent/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8], &[u8])| {
    let (document, other, patch) = input;
    fuzz_entry::patch(document, other, patch);
});
