//! What a stream consists of.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use super::JsonText;
use crate::Error;

/// Where in a stream an event is, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(u64);

impl Position {
    /// Before the first event.
    pub const START: Self = Self(0);

    /// The position of that number; 0 is [`Position::START`].
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The position after this one.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Position {
    type Err = ParseIntError;

    fn from_str(number: &str) -> Result<Self, Self::Err> {
        number.parse().map(Self)
    }
}

/// Something that happened in a stream, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Where it is.
    pub position: Position,
    /// What it is.
    pub event: StreamEvent,
}

/// Something that happened in a stream.
#[derive(Debug, Clone)]
pub enum StreamEvent {
    /// A chunk was sent.
    Chunk(JsonText),
    /// The stream ended with this output.
    Done(JsonText),
    /// The stream ended with this error.
    Failed(Error),
}

impl StreamEvent {
    /// Whether nothing comes after it.
    pub fn is_end(&self) -> bool {
        !matches!(self, Self::Chunk(_))
    }
}

/// Errors are equal if they look the same to every reader.
impl PartialEq for StreamEvent {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Chunk(one), Self::Chunk(two)) | (Self::Done(one), Self::Done(two)) => one == two,
            (Self::Failed(one), Self::Failed(two)) => {
                one.status() == two.status()
                    && one.message() == two.message()
                    && one.public_message() == two.public_message()
                    && one.details() == two.details()
            }
            _ => false,
        }
    }
}
