//! Reads arbitrary headers that name a stream and a position in it: `cargo fuzz run server_position`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-server/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|headers: (&[u8], &[u8])| fuzz_entry::read_position(headers.0, headers.1));
