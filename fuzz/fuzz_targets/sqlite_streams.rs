//! Reads a SQLite stream log whose rows hold arbitrary values: `cargo fuzz run sqlite_streams`.
//!
//! The property tests of the crate drive the same function on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-sqlite/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// A good database.
static GOOD: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder can be made");
    runtime().block_on(fuzz_entry::fill_streams(&folder.path().join("good.db")));
    folder
});

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made")
}

fuzz_target!(|damages: Vec<fuzz_entry::Damage>| {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let good = GOOD.path().join("good.db");
    runtime().block_on(fuzz_entry::use_streams(folder.path(), &good, &damages));
});
