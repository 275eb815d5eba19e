//! The result of checking a database.

use std::fmt::Display;

use crate::StoreFault;

/// The greatest number of listed problems.
const MAX_PROBLEMS: usize = 100;

/// The result of checking the integrity of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// The number of snapshots.
    pub snapshots: u64,
    /// The number of stored messages.
    pub messages: u64,
    /// The number of stored documents: custom states, lists of artifacts and prompt inputs.
    pub documents: u64,
    /// The number of long strings that are stored by their hash.
    pub blobs: u64,
    /// The number of journal records.
    pub records: u64,
    /// The problems found, at most 100.
    pub problems: Vec<String>,
}

impl Verification {
    /// Returns whether no problem was found.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a problem, unless 100 are listed already.
    pub fn add_problem(&mut self, what: impl Display) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(what.to_string());
        }
    }

    /// Adds damage as a problem of `what`.
    ///
    /// # Errors
    /// Every other failure.
    pub fn check<T, F: StoreFault>(&mut self, what: impl Display, outcome: Result<T, F>) -> Result<(), F> {
        if let Err(fault) = outcome {
            let why = fault.into_damage()?;
            self.add_problem(format!("{what}: {why}"));
        }
        Ok(())
    }
}
