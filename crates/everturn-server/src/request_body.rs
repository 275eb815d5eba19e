//! Reading and parsing the body of a request: `{"data": …, "init": …}`, within the limits on its size and
//! time.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use everturn_core::{Descriptor, Error, Result};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::Value;

use crate::error_body::Refusal;
use crate::permits::Permit;
use crate::{Limits, ServerHandle};

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

/// Refuses a body whose `Content-Type` is not JSON. A missing type is refused too, also where the body is
/// empty, because a browser sends such a request to other origins without asking them.
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

/// The maximum number of bytes of an oversized body that are read and discarded. A client that reads the
/// response only after it has sent everything would otherwise see a broken connection.
const DISCARDED_BYTES: usize = 256 * 1024 * 1024;

/// The maximum time to discard a body.
const DISCARD_TIME: Duration = Duration::from_secs(30);

/// Reads the whole body.
///
/// Fails with `413` if it is too large, with `400` if the client disconnects or its values would take too
/// much memory, and with `408` if it takes too long. Fails with `429` if the server's byte limit is reached,
/// and with `503` after the grace period of a shutdown.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
    handle: &ServerHandle,
    permit: &mut Permit,
) -> Result<Bytes, Refusal> {
    tokio::select! {
        // The body comes first, because it has mostly arrived: waiting for the token takes a lock that all
        // requests share.
        biased;
        read = read_in_time(headers, body, limits, permit) => read,
        () = handle.grace_over().cancelled() => {
            let message = "the server ended before the request had arrived: send it again";
            Err(Error::unavailable(message).with_public().into())
        }
    }
}

async fn read_in_time(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
    permit: &mut Permit,
) -> Result<Bytes, Refusal> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limits.body_bytes as u64) {
        // A client that sent `Expect: 100-continue` has not begun to send.
        if !headers.contains_key(header::EXPECT) {
            discard(body).await;
        }
        return Err(too_large(limits));
    }
    let reading = tokio::time::timeout(limits.body_time, collect(body, limits, permit));
    reading.await.unwrap_or_else(|_| {
        let message = format!(
            "the body did not arrive within {} seconds",
            limits.body_time.as_secs_f64()
        );
        let error = Error::deadline_exceeded(message);
        Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, error))
    })
}

async fn collect(mut body: Body, limits: &Limits, permit: &mut Permit) -> Result<Bytes, Refusal> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            let error = Error::invalid_argument("the body broke off or is not framed as announced");
            Refusal::new(StatusCode::BAD_REQUEST, error)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if collected.len() + data.len() > limits.body_bytes {
            drop(collected);
            discard(body).await;
            return Err(too_large(limits));
        }
        permit.take(data.len())?;
        collected.extend_from_slice(&data);
    }
    let collected = collected.freeze();
    permit.take_parsed(limits.parsed_size(&collected).await?)?;
    Ok(collected)
}

pub(crate) async fn discard(mut body: Body) {
    let discarding = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > DISCARDED_BYTES {
                break;
            }
        }
    };
    // The response does not depend on whether discarding ended in time.
    let _ = tokio::time::timeout(DISCARD_TIME, discarding).await;
}

fn too_large(limits: &Limits) -> Refusal {
    let message = format!(
        "the body is larger than the {} bytes that are allowed",
        limits.body_bytes
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, Error::invalid_argument(message))
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
