//! Reads arbitrary targets and headers that may ask for a stream: `cargo fuzz run server_wish`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-server/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|wish: (&str, &[u8])| fuzz_entry::read_wish(wish.0, wish.1));
