//! The entries of a stream: events, their positions, and the forms in which a log stores their content.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Exposure, Result, Status};

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

    fn from_str(number: &str) -> Result<Self, ParseIntError> {
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

impl Entry {
    /// Creates an entry.
    pub fn new(position: Position, event: StreamEvent) -> Self {
        Self { position, event }
    }
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

/// The text of a JSON value, on one line. Cloning is cheap.
///
/// An event is serialised once, when it is written, and every reader gets that text. So all readers see the
/// same value, down to the digits of a number.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(Arc<str>);

impl JsonText {
    /// Serialises a value.
    ///
    /// # Errors
    /// `INTERNAL` if the value has no JSON form.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self> {
        Ok(Self(serde_json::to_string(value)?.into()))
    }

    /// Checks and keeps text that is already JSON, for example from a log's storage.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the text is not JSON or not on one line.
    pub fn parse(text: impl Into<Arc<str>>) -> Result<Self> {
        let text = text.into();
        if text.contains(['\n', '\r']) {
            return Err(Error::invalid_argument("JSON text must be in one line"));
        }
        serde_json::from_str::<IgnoredAny>(&text)
            .map_err(|error| Error::invalid_argument(format!("this is not JSON: {error}")))?;
        Ok(Self(text))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Deserialises the value.
    ///
    /// # Errors
    /// `INTERNAL` if the JSON does not match the type `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_str(&self.0)?)
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error as a log stores it: with one message, and whether that message is public.
///
/// An error with a public message keeps only that. An error without one keeps its private message, marked as
/// private, so that a reader can show it to an operator and not to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredError {
    /// The canonical status.
    pub status: Status,
    /// The public message if there is one, else the private one.
    pub message: String,
    /// Whether the message may be shown to clients.
    pub public: bool,
    /// Machine-readable details that help the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl From<&Error> for StoredError {
    fn from(error: &Error) -> Self {
        let wire = error.to_wire(Exposure::Full);
        Self {
            status: wire.status.unwrap_or(Status::Unknown),
            message: wire.message,
            public: error.public_message().is_some(),
            details: wire.details,
        }
    }
}

impl From<StoredError> for Error {
    fn from(stored: StoredError) -> Self {
        let mut error = Self::new(stored.status, stored.message);
        if let Some(details) = stored.details {
            error = error.with_details(details);
        }
        if stored.public { error.with_public() } else { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_would_break_a_line_or_is_not_json_is_refused() {
        for text in ["{\n}", "{\"a\":1}\r", "{", "1 2", ""] {
            let error = JsonText::parse(text).unwrap_err();

            assert_eq!(error.status(), Status::InvalidArgument, "{text:?}");
        }
    }

    #[test]
    fn a_newline_inside_a_string_stays_inside_the_line() {
        let text = JsonText::of("one\ntwo\r").unwrap();

        assert_eq!(text.as_str(), r#""one\ntwo\r""#);
        assert_eq!(JsonText::parse(text.as_str()).unwrap(), text);
        assert_eq!(text.read::<String>().unwrap(), "one\ntwo\r");
    }

    #[test]
    fn private_text_stays_private_through_a_log_and_a_public_message_is_all_that_is_kept() {
        let private = Error::internal("row 17").with_details("table t");
        let public = Error::not_found("row 17").with_public_message("no such recipe");

        let through = |error: &Error| {
            let text = serde_json::to_string(&StoredError::from(error)).unwrap();
            (
                text.clone(),
                Error::from(serde_json::from_str::<StoredError>(&text).unwrap()),
            )
        };
        let ((_, private), (kept, public)) = (through(&private), through(&public));

        assert_eq!(private.to_wire(Exposure::Public).message, "internal error");
        assert_eq!(private.to_wire(Exposure::Full).message, "row 17");
        assert_eq!(public.to_wire(Exposure::Public).message, "no such recipe");
        assert!(!kept.contains("row 17"), "{kept}");
    }
}
