//! The body of a request: `{"data": …, "init": …}`.

use std::fmt;

use axum::http::{HeaderMap, StatusCode, header};
use everturn_core::{Descriptor, Error, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::error_body::Refusal;

/// The body of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Envelope {
    /// The input; absent if the action takes none.
    #[serde(default)]
    pub(crate) data: Option<Value>,
    /// The value that opens a bidirectional action.
    #[serde(default)]
    pub(crate) init: Option<Value>,
}

impl Envelope {
    /// Parses a body. An empty body has neither field.
    ///
    /// Fails with `INVALID_ARGUMENT` if it is not JSON of this shape, or nested deeper than the parser goes.
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |why: &dyn fmt::Display| {
            let shape = r#"the body must be JSON of the form {"data": …, "init": …}"#;
            Error::invalid_argument(format!("{shape}: {why}")).with_public()
        };
        // The parser would accept a list of two values.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(wrong(&"it is not an object"));
        }
        serde_json::from_slice(body).map_err(|error| wrong(&error))
    }

    /// Refuses an `init` for an action that is not bidirectional.
    pub(crate) fn check_against(&self, descriptor: &Descriptor) -> Result<()> {
        let opens = self.init.as_ref().is_some_and(|init| !init.is_null());
        if opens && descriptor.init_schema.is_none() {
            let message = format!(
                "'{}' is not a bidirectional action: leave 'init' out of the body",
                descriptor.key
            );
            return Err(Error::invalid_argument(message).with_public());
        }
        Ok(())
    }
}

/// Refuses a body whose `Content-Type` is not JSON. A missing type is refused too, also where the body is empty, because a
/// browser sends such a request to other origins without asking them.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mime = text
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let is_json = mime == "application/json" || (mime.starts_with("application/") && mime.ends_with("+json"));
    if is_json {
        return Ok(());
    }
    let error = Error::invalid_argument("the body must be sent as 'Content-Type: application/json'");
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_an_object_of_data_and_init_and_nothing_else() {
        assert!(Envelope::parse(b"").unwrap().data.is_none());
        assert_eq!(Envelope::parse(br#"{"data":1}"#).unwrap().data, Some(1.into()));
        for wrong in ["[]", "1", "null", "{", r#"{"input":1}"#, "\u{0}"] {
            let error = Envelope::parse(wrong.as_bytes()).unwrap_err();

            assert!(error.public_message().is_some(), "{wrong}");
        }
    }

    #[test]
    fn nesting_is_bounded_before_anything_is_built() {
        let deep = format!("{{\"data\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));

        assert!(Envelope::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn json_is_recognised_by_its_content_type() {
        let with = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            check_content_type(&headers)
        };

        assert!(with("application/json").is_ok());
        assert!(with("Application/JSON; charset=utf-8").is_ok());
        assert!(with("application/vnd.api+json").is_ok());
        assert!(with("text/plain").is_err());
        assert!(check_content_type(&HeaderMap::new()).is_err());
    }
}
