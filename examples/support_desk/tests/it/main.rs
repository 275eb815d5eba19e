//! The desk as its customers, its staff and its operator meet it: the program itself, over HTTP.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod approvals;
mod conversations;
mod earlier_versions;
mod failures;
mod support;
mod survival;
