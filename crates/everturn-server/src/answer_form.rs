//! The form of a response: streamed or not, and with or without the fields that Everturn adds to Genkit's
//! protocol.
//!
//! Recorded streams contain every field. Fields that a caller did not request are removed here.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use everturn_agent::PlainProtocol;
use everturn_core::stream_log::StreamEvent;
use everturn_core::{ActionType, Error, Result};
use serde_json::Value;

use crate::event::Event;

/// Asks for the added fields.
pub(crate) const EXTENSIONS: HeaderName = HeaderName::from_static("x-everturn-extensions");

/// Asks for the added fields as a subprotocol of a WebSocket: pages cannot set headers there.
const SUBPROTOCOL: &str = "everturn.extensions";

/// The form in which one caller is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerForm(Option<PlainProtocol>);

impl AnswerForm {
    /// The form with every field.
    pub(crate) const COMPLETE: Self = Self(None);

    /// Returns the form that a request to an action asks for.
    ///
    /// Fails with `INVALID_ARGUMENT` if the header is neither on nor off.
    pub(crate) fn of(headers: &HeaderMap, action_type: &ActionType) -> Result<Self> {
        let asked = is_requested(headers)?;
        Ok(Self(PlainProtocol::of(action_type).filter(|_| !asked)))
    }

    pub(crate) fn output(self, output: Value) -> Value {
        match self.0 {
            Some(plain) => plain.output(output),
            None => output,
        }
    }

    /// Returns the event for the caller; `None` if it is not sent. Outputs are in their form already.
    pub(crate) fn event(self, event: Event) -> Option<Event> {
        let Some(plain) = self.0 else {
            return Some(event);
        };
        Some(match event {
            Event::Message(chunk) => Event::Message(plain.chunk(chunk)?),
            end @ (Event::Result(_) | Event::Error(_)) => end,
        })
    }

    /// Returns the event of a kept stream for the caller; `None` if it is not sent.
    pub(crate) fn recorded(self, event: StreamEvent) -> Option<StreamEvent> {
        let Some(plain) = self.0 else {
            return Some(event);
        };
        Some(match event {
            StreamEvent::Chunk(chunk) => StreamEvent::Chunk(plain.chunk(chunk)?),
            StreamEvent::Done(output) => StreamEvent::Done(plain.output_text(output)),
            failed @ StreamEvent::Failed(_) => failed,
        })
    }
}

fn is_requested(headers: &HeaderMap) -> Result<bool> {
    match headers.get(EXTENSIONS).map(HeaderValue::as_bytes) {
        Some(b"1" | b"true") => Ok(true),
        Some(b"0" | b"false") => Ok(false),
        Some(other) => Err(Error::invalid_argument(format!(
            "the header 'X-Everturn-Extensions' must be '1' or '0', and is '{}'",
            other.escape_ascii()
        ))
        .with_public()),
        None => {
            let offers = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
            let mut offers = offers
                .filter_map(|offer| offer.to_str().ok())
                .flat_map(|offer| offer.split(','));
            Ok(offers.any(|offer| offer.trim() == SUBPROTOCOL))
        }
    }
}

/// Returns whether a request asks for a stream, by `Accept: text/event-stream` or by `?stream=true`.
///
/// Fails with `INVALID_ARGUMENT` if `stream` is neither true nor false.
pub(crate) fn is_stream_requested(uri: &Uri, headers: &HeaderMap) -> Result<bool> {
    let parameter = uri.query().and_then(|query| {
        query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find_map(|(name, value)| (name == "stream").then_some(value))
    });
    let asked = match parameter {
        None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
        Some(_) => {
            let message = "the query parameter 'stream' must be 'true' or 'false'";
            return Err(Error::invalid_argument(message).with_public());
        }
    };
    let accepted = headers.get_all(header::ACCEPT).iter().any(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.to_ascii_lowercase().contains("text/event-stream"))
    });
    Ok(asked || accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &'static str, value: &'static str) -> Result<bool> {
        is_requested(&HeaderMap::from_iter([(
            HeaderName::from_static(name),
            value.parse().unwrap(),
        )]))
    }

    #[test]
    fn the_added_fields_are_requested_by_header_or_subprotocol() {
        assert!(!is_requested(&HeaderMap::new()).unwrap());
        assert!(asked("x-everturn-extensions", "1").unwrap());
        assert!(asked("x-everturn-extensions", "true").unwrap());
        assert!(!asked("x-everturn-extensions", "0").unwrap());
        assert!(asked("sec-websocket-protocol", "everturn.v1, everturn.extensions").unwrap());
        assert!(!asked("sec-websocket-protocol", "everturn.v1").unwrap());
    }

    #[test]
    fn a_value_that_is_neither_on_nor_off_is_refused() {
        let error = asked("x-everturn-extensions", "all").unwrap_err();

        assert!(error.public_message().unwrap().contains("'all'"));
    }

    fn wanted(uri: &str, accept: Option<&str>) -> Result<bool> {
        let mut headers = HeaderMap::new();
        if let Some(accept) = accept {
            headers.insert(header::ACCEPT, accept.parse().unwrap());
        }
        is_stream_requested(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn a_stream_is_requested_by_header_or_by_query() {
        for word in ["1", "t", "T", "true", "TRUE", "True"] {
            assert!(wanted(&format!("/a?x=1&stream={word}"), None).unwrap(), "{word}");
        }
        assert!(wanted("/a", Some("application/json, Text/Event-Stream;q=0.9")).unwrap());
        assert!(wanted("/a?stream=false", Some("text/event-stream")).unwrap());
        assert!(!wanted("/a?stream=0", Some("application/json")).unwrap());
        assert!(!wanted("/a", None).unwrap());
    }

    #[test]
    fn a_word_that_is_neither_true_nor_false_is_refused() {
        for word in ["yes", "", "tRUE"] {
            let error = wanted(&format!("/a?stream={word}"), None).unwrap_err();

            assert!(error.public_message().is_some());
        }
    }
}
