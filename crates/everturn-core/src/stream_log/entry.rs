//! The entries of a stream: events and their positions.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use super::JsonText;
use crate::Error;

/// The position of an event in a stream, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(u64);

impl Position {
    /// The position before the first event.
    pub const START: Self = Self(0);

    /// Creates a position from its number; 0 is [`Position::START`].
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the position's number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the position after this one.
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

/// An event of a stream, with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The event's position.
    pub position: Position,
    /// The event.
    pub event: StreamEvent,
}

/// An event of a stream: a chunk, or the stream's end.
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
    /// Returns whether this event ends the stream.
    pub fn is_end(&self) -> bool {
        !matches!(self, Self::Chunk(_))
    }
}

/// Two errors are equal if every reader sees the same.
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
