//! Uses a file store whose files hold arbitrary bytes: `cargo fuzz run file_store`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-file/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use libfuzzer_sys::fuzz_target;
use tokio::runtime::Builder;

fuzz_target!(|files: (&[u8], &[u8], &[u8])| {
    let (row, pointer, mark) = files;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime
        .expect("a runtime can be made")
        .block_on(fuzz_entry::use_files(folder.path(), row, pointer, mark));
});
