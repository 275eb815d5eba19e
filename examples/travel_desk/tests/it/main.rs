//! The desk under attack: killed, timed out, retried and talked over, in two processes on one database.
#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod attack;
mod desks;
mod flaky_service;
