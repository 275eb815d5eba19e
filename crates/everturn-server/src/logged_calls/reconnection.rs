//! The headers by which a request names an existing stream.

use axum::http::{HeaderMap, HeaderName};
use everturn_core::stream_log::Position;
use everturn_core::{Error, Result};

/// Names a stream: in a response the new stream, in a request the one to reattach to.
pub(crate) const STREAM_ID: HeaderName = HeaderName::from_static("x-genkit-stream-id");

/// Asks for `id:` lines.
const EVENT_IDS: HeaderName = HeaderName::from_static("x-everturn-event-ids");

/// The last event that the client has seen.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The greatest length of an id; our own are shorter.
const MAX_ID: usize = 256;

/// The stream to reattach to, and the last event that the client has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reconnection {
    pub(crate) id: String,
    pub(crate) after: Position,
}

/// Returns the id of the stream that a request names, if it names one.
///
/// Fails with `INVALID_ARGUMENT` if the header cannot be an id.
pub(crate) fn stream_id(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = only(headers, &STREAM_ID)? else {
        return Ok(None);
    };
    if value.is_empty() || value.len() > MAX_ID {
        return Err(invalid(
            "the header 'X-Genkit-Stream-Id' must hold the id of a stream",
        ));
    }
    Ok(Some(value.to_owned()))
}

impl Reconnection {
    /// Returns the stream that a request asks to reattach to; `None` if it asks for a new call.
    ///
    /// Fails with `INVALID_ARGUMENT` if the request names an event and no stream, or if a header cannot be
    /// parsed.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>> {
        let id = stream_id(headers)?;
        let after = only(headers, &LAST_EVENT_ID)?;
        let Some(id) = id else {
            // Starting a new call instead would do everything twice.
            return match after {
                Some(_) => Err(invalid(
                    "'Last-Event-ID' is sent without 'X-Genkit-Stream-Id': name the stream to reattach to",
                )),
                None => Ok(None),
            };
        };
        let after = match after {
            None => Position::START,
            Some(text) => text.parse().map_err(|_| {
                invalid("the header 'Last-Event-ID' must be the 'id' of an event of this stream")
            })?,
        };
        Ok(Some(Self { id, after }))
    }

    /// Returns whether a client asks for `id:` lines.
    pub(crate) fn wants_ids(headers: &HeaderMap) -> bool {
        let asked = headers
            .get(EVENT_IDS)
            .is_some_and(|value| value.as_bytes() == b"1");
        asked || headers.contains_key(LAST_EVENT_ID)
    }
}

/// Returns the value of a header that may be sent only once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) if values.next().is_none() => Ok(Some(text.trim())),
        _ => Err(invalid(&format!(
            "the header '{name}' must be sent once, as plain text"
        ))),
    }
}

fn invalid(message: &str) -> Error {
    Error::invalid_argument(message).with_public()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_stream_is_reattached_at_its_beginning_or_after_an_event() {
        let from_start = headers(&[("x-genkit-stream-id", "abc")]);
        let from_event = headers(&[("x-genkit-stream-id", "abc"), ("last-event-id", "7")]);

        assert_eq!(Reconnection::of(&HeaderMap::new()).unwrap(), None);
        assert_eq!(
            Reconnection::of(&from_start).unwrap().unwrap().after,
            Position::START
        );
        assert_eq!(
            Reconnection::of(&from_event).unwrap().unwrap().after,
            Position::new(7)
        );
    }

    #[test]
    fn ids_are_sent_only_to_clients_that_ask_for_them() {
        assert!(!Reconnection::wants_ids(&headers(&[(
            "x-genkit-stream-id",
            "abc"
        )])));
        assert!(!Reconnection::wants_ids(&headers(&[(
            "x-everturn-event-ids",
            "0"
        )])));
        assert!(Reconnection::wants_ids(&headers(&[(
            "x-everturn-event-ids",
            "1"
        )])));
        assert!(Reconnection::wants_ids(&headers(&[("last-event-id", "0")])));
    }

    #[test]
    fn a_malformed_reattachment_is_refused_and_does_not_run_the_call_again() {
        let long = "x".repeat(MAX_ID + 1);
        for wrong in [
            vec![("last-event-id", "7")],
            vec![("x-genkit-stream-id", "abc"), ("last-event-id", "seven")],
            vec![("x-genkit-stream-id", "abc"), ("last-event-id", "-1")],
            vec![("x-genkit-stream-id", "")],
            vec![("x-genkit-stream-id", long.as_str())],
        ] {
            assert!(Reconnection::of(&headers(&wrong)).is_err(), "{wrong:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(STREAM_ID, "a".parse().unwrap());
        twice.append(STREAM_ID, "b".parse().unwrap());
        assert!(Reconnection::of(&twice).is_err());
    }
}
