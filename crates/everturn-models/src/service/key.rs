//! API keys, which are never printed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use reqwest::header::{HeaderName, HeaderValue};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// The text in place of a key.
const HIDDEN: &str = "<redacted>";

/// A provider's API key. Printing it shows no part of it; serialising it does, because settings travel as
/// JSON.
///
/// ```
/// use everturn_models::ApiKey;
///
/// let key = ApiKey::new(" sk-secret\n");
/// assert_eq!(format!("{key:?}"), "<redacted>");
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApiKey(Arc<str>);

impl ApiKey {
    /// Creates a key, without the white space that copying leaves around it.
    pub fn new(key: &str) -> Self {
        Self(key.trim().into())
    }

    /// Returns a text with the key replaced. Providers repeat keys in their errors.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        if self.0.is_empty() {
            text.to_owned()
        } else {
            text.replace(&*self.0, HIDDEN)
        }
    }

    /// Returns the header with the key; `None` if the key contains a character that headers do not allow.
    pub(crate) fn header(&self, place: &KeyHeader) -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = match place {
            KeyHeader::Bearer => (reqwest::header::AUTHORIZATION, format!("Bearer {}", self.0)),
            KeyHeader::Named(name) => (HeaderName::from_static(name), self.0.to_string()),
        };
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

everturn_core::conversions! {
    From<&str> for ApiKey: |key| Self::new(key);
    From<String> for ApiKey: |key| Self::new(&key);
}

/// A key is a string in the schemas of settings.
impl JsonSchema for ApiKey {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// The header of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// `authorization: Bearer KEY`.
    Bearer,
    /// A header of that name, in lower case.
    Named(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_neither_printed_nor_left_in_a_message() {
        let key = ApiKey::new(" sk-secret\n");
        let (_, header) = key.header(&KeyHeader::Bearer).unwrap();

        assert_eq!(format!("{key:?} {header:?}"), "<redacted> Sensitive");
        assert_eq!(key.hidden_in("wrong key: sk-secret!"), "wrong key: <redacted>!");
    }
}
