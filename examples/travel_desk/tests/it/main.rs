//! The desk under attack, in two processes on one database.
#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod attack;
mod customer;
mod desks;
