//! JSON that is written as it was read.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::{Error, Result};

/// A JSON value as its text, in one line. Cloning is cheap.
///
/// An event is turned into text once, when it is written, and that text is what every reader gets: no reader's view can
/// differ from another's, in the digits of a number for instance.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(Arc<str>);

impl JsonText {
    /// The text of a value.
    ///
    /// # Errors
    /// `INTERNAL` if the value has no JSON form.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self> {
        Ok(Self(serde_json::to_string(value)?.into()))
    }

    /// Takes text that is JSON already, from a log's storage for instance.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not JSON, or not in one line.
    pub fn parse(text: impl Into<Arc<str>>) -> Result<Self> {
        let text = text.into();
        if text.contains(['\n', '\r']) {
            return Err(Error::invalid_argument("JSON text must be in one line"));
        }
        serde_json::from_str::<IgnoredAny>(&text)
            .map_err(|error| Error::invalid_argument(format!("this is not JSON: {error}")))?;
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value, as any type that can be read from JSON.
    ///
    /// # Errors
    /// `INTERNAL` if the value is not one of that type.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

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
}
