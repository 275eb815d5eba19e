//! All integration tests, in one program, because every further one is linked and stored separately.
//!
//! The tests need PostgreSQL, and `PgBouncer` before it, which `./test` starts. Without them they step aside.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod connections;
mod contention;
mod contract;
mod damaged_rows;
mod faults;
#[path = "../../../everturn-sqlite/tests/it/support/log_under_test.rs"]
mod log_under_test;
mod maintenance;
mod opening;
mod restores;
mod round_trips;
mod silence;
mod stream_log_contract;
mod support;
mod watching_a_status;
