//! All integration tests, in one program, because every further one is linked and stored separately.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod atomic_saves;
mod behaves_like_the_memory_store;
mod closing;
mod contract;
mod crashes;
mod damaged_rows;
mod deleting_for_good;
mod faults;
mod forking_turns;
#[path = "../fuzz_entry/mod.rs"]
mod fuzz_entry;
mod held_lock;
mod journals;
mod latest_of_a_session;
mod limits;
mod listing;
mod lost_rows;
mod maintenance;
mod opening;
mod round_trip;
mod rules_of_rows;
mod session_faults;
mod sharing;
mod stream_log;
mod stream_log_contract;
mod support;
mod tenants_are_apart;
mod two_processes;
mod watching_a_status;
