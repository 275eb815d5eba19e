//! Checks arbitrary tokens with arbitrary keys: `cargo fuzz run server_token`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-server/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|token: (&str, &[u8])| fuzz_entry::read_token(token.0, token.1));
