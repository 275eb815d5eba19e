//! The agents of the cases, and agents for Everturn's additions.
//!
//! The names, tools and texts of the cases' agents are the same in all implementations of the protocol.

mod custom;
mod echo;
mod extended;
mod open;
mod prompted;

use std::sync::Arc;

use everturn_agent::IntoStore;
use everturn_core::Result;
use everturn_core::stream_log::StreamLog;

use crate::Harness;

/// Defines the agents of the cases on a new registry; those with a store use `store`.
///
/// # Errors
/// The error of an agent's definition.
pub fn harness(store: impl IntoStore) -> Result<Harness> {
    watched_harness(store, None)
}

/// Like [`harness`], with background runs that every reader of the log can watch.
///
/// # Errors
/// As [`harness`].
pub fn watched_harness(store: impl IntoStore, run_log: Option<Arc<dyn StreamLog>>) -> Result<Harness> {
    let mut harness = Harness::empty(store, run_log)?;
    prompted::define(&mut harness)?;
    custom::define(&mut harness)?;
    extended::define(&mut harness)?;
    echo::define(&mut harness)?;
    open::define(&mut harness)?;
    Ok(harness)
}
