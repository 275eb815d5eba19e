//! Decodes arbitrary event streams, whole and cut to pieces: `cargo fuzz run client_events`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-client/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<usize>, u16)| {
    let (stream, cuts, limit) = input;
    fuzz_entry::assert_cuts_do_not_matter(&stream, &cuts, usize::from(limit));
});
