//! Hostile clients and frozen neighbours: a server in a separate process keeps its memory within bounds, and
//! continues to answer promptly.
#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]
#![allow(clippy::disallowed_methods, reason = "attacks and stops last for a time")]
#![cfg(target_os = "linux")]

mod attacks;
mod clients;
mod costly_requests;
mod frozen_neighbour;
mod observer;
#[path = "../processes/mod.rs"]
mod processes;
#[path = "../served/mod.rs"]
mod served;
mod wire;

use parking_lot::{Mutex, MutexGuard};

const MEGABYTE: usize = 1024 * 1024;

/// Waits until no other test of this program runs, because each measures.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A failed test leaves no state behind.
    ALONE.lock()
}
