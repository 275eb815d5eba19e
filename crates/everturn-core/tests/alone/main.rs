//! Tests that need the process for themselves, one after the other: they measure its memory, or depend on who
//! listens to spans.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

#[cfg(target_os = "linux")]
mod refusal_memory;
mod spans;
mod spans_bidi;
mod spans_without_listeners;
#[path = "../it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "this program uses a part of it")]
mod support;
#[path = "../traces/mod.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod traces;

use std::sync::{Mutex, MutexGuard, PoisonError};

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
