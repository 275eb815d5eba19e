//! Why a JSON object is not a part or a message.

use std::{error, fmt};

/// A JSON object that cannot be read as a part, or as a message, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPart(String);

impl InvalidPart {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    pub(crate) fn inside(self, key: &str) -> Self {
        Self(format!("in `{key}`: {}", self.0))
    }
}

impl fmt::Display for InvalidPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl error::Error for InvalidPart {}
