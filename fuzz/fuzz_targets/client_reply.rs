//! Reads arbitrary replies of servers: `cargo fuzz run client_reply`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-client/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|reply: (u16, &[u8])| fuzz_entry::read_reply(reply.0, reply.1));
