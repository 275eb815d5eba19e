//! Imports arbitrary files: `cargo fuzz run archive_file`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-agent/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::Builder;

fuzz_target!(|file: &[u8]| {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime
        .expect("a runtime can be made")
        .block_on(fuzz_entry::import(file));
});
