//! JSON values that keep their exact text.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::{Error, Result};

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
