//! Mistakes in prompts and agents that are found before these are used.
//!
//! Reading a file adds to a list instead of failing at the first mistake. Names are looked up when the
//! program starts, once everything is defined, because a prompt may name a tool that is defined after it.

use std::fmt::Write as _;

use everturn_core::{Error, Result};

/// Mistakes in prompts and agents, collected so that one error lists all of them.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<Error>);

impl Mistakes {
    /// Adds a mistake.
    pub fn add(&mut self, mistake: Error) {
        self.0.push(mistake);
    }

    /// Adds the mistakes of another collection, in their order.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an error if there are mistakes.
    ///
    /// # Errors
    /// A single mistake as it is; `INVALID_ARGUMENT` that lists them, a line each, if there are several.
    pub fn into_result(mut self) -> Result<()> {
        if self.0.len() < 2 {
            return self.0.pop().map_or(Ok(()), Err);
        }
        let mut message = format!("{} mistakes in prompts and agents:", self.0.len());
        for mistake in &self.0 {
            // Writing to a string cannot fail.
            let _ = write!(message, "\n  {}", mistake.message().replace('\n', "\n  "));
        }
        Err(Error::invalid_argument(message))
    }
}
