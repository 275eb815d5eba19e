//! The data that a collector receives.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod collector;
mod collector_faults;
mod spans_and_lines;
mod traces_across_programs;
