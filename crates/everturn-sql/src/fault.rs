//! Failures of encoding and decoding.

use everturn_core::Error;

/// The result of encoding or decoding.
pub type Outcome<T> = Result<T, Fault>;

/// Why a value cannot be encoded or decoded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// The stored data is damaged.
    Damaged(String),
    /// The value cannot be stored.
    Refused(Error),
}

impl Fault {
    /// Creates the fault of damaged data.
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}
