//! Hostile clients and frozen neighbours: a server in a process of its own keeps its memory within bounds, and goes on
//! answering promptly.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]
#![allow(clippy::disallowed_methods, reason = "attacks and stops last for a time")]
#![cfg(target_os = "linux")]

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

/// Waits until no other test of this program runs: each measures.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed leaves nothing behind.
    ALONE.lock()
}
