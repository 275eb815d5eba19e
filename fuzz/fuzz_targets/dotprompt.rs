//! Parses, compiles and renders arbitrary sources: `cargo fuzz run dotprompt`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/dotprompt/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| fuzz_entry::parse_and_render(source));
