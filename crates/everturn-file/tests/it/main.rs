//! All integration tests, in one program, because every further one is linked and stored separately.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod chain_cap;
mod contract;
mod crash_points;
mod crashes;
mod damaged_files;
mod faults;
mod foreign_files;
mod forking_turns;
#[path = "../fuzz_entry/mod.rs"]
mod fuzz_entry;
mod held_lock;
mod interop;
mod journal_crashes;
mod lost_files;
mod many_clients;
mod planted_defects;
mod power_loss;
mod processes;
mod support;
mod what_is_read;
