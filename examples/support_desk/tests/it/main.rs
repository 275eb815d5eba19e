//! The desk as used by customers, staff and its operator: the program itself, over HTTP.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod approvals;
mod conversations;
mod earlier_versions;
mod failures;
mod support;
mod survival;
