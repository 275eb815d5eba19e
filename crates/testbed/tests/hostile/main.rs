//! Hostile clients, frozen neighbours and many clients at once: a server keeps its memory within bounds, and
//! continues to answer promptly.
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]
#![cfg(target_os = "linux")]

mod attacks;
mod clients;
mod costly_requests;
mod frozen_neighbour;
mod load;
mod observer;
#[path = "../it/processes.rs"]
mod processes;
#[path = "../it/served.rs"]
mod served;
mod wire;

use parking_lot::{Mutex, MutexGuard};

const MEGABYTE: usize = 1024 * 1024;

/// Keeps other tests of this program from running.
struct Alone {
    _turn: MutexGuard<'static, ()>,
}

/// Waits until no other test of this program runs, because each measures.
fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test leaves no state behind.
    Alone { _turn: ALONE.lock() }
}
