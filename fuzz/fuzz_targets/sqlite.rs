//! Uses a SQLite store, or a stream log, whose rows hold arbitrary values: `cargo fuzz run sqlite`.
//!
//! The property tests of the crate drive the same functions on a stable toolchain.
#![no_main]

#[path = "../../crates/everturn-sqlite/tests/fuzz_entry/mod.rs"]
mod fuzz_entry;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// A valid database of each kind.
static GOOD: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder can be made");
    runtime().block_on(async {
        fuzz_entry::fill_store(&folder.path().join("store.db")).await;
        fuzz_entry::fill_streams(&folder.path().join("streams.db")).await;
    });
    folder
});

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made")
}

fuzz_target!(|input: (bool, Vec<fuzz_entry::Damage>)| {
    let (is_store, damages) = input;
    let folder = tempfile::tempdir().expect("a folder can be made");
    // Outside the runtime below, because filling the databases starts another one.
    let good = GOOD.path();
    runtime().block_on(async {
        if is_store {
            fuzz_entry::use_store(folder.path(), &good.join("store.db"), &damages).await;
        } else {
            fuzz_entry::use_streams(folder.path(), &good.join("streams.db"), &damages).await;
        }
    });
});
