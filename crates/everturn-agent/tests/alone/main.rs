//! Tests that need the process for themselves, one after the other: they count its bytes, or depend on who
//! subscribes to log lines and spans, which `tracing` caches for all threads.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod logging;
mod memory_store_heap;
mod spans;
#[path = "../it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "this program uses a part of it")]
mod support;
mod ten_thousand_runs;
#[path = "../../../everturn-core/tests/traces/mod.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod traces;

use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Keeps the other tests of this program from running.
struct Alone {
    _turn: MutexGuard<'static, ()>,
}

/// Waits until no other test of this program runs.
fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test leaves no state behind.
    Alone {
        _turn: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
    }
}
