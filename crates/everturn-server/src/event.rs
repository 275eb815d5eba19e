//! The events of a stream and their encoding.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use bytes::Bytes;
use everturn_agent::PlainProtocol;
use everturn_core::stream_log::{JsonText, StreamEvent};
use everturn_core::{ActionType, Error, Result, RuntimeError};
use serde_json::Value;

/// One event of a stream. A stream has any number of messages and ends with exactly one result or one error.
///
/// On the wire an event is `data: <json>` and a blank line, without names or ids: clients remove the first
/// six characters and parse the rest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A chunk.
    Message(JsonText),
    /// The output.
    Result(JsonText),
    /// The error.
    Error(RuntimeError),
}

impl Event {
    /// Returns whether the event ends the stream.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(self, Self::Message(_))
    }

    /// Encodes the event.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        self.encode_into(&mut bytes);
        bytes.into()
    }

    /// Appends the encoded event to a buffer.
    pub(crate) fn encode_into(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"data: ");
        self.write_into(bytes);
        bytes.extend_from_slice(b"\n\n");
    }

    /// Appends the event's JSON.
    pub(crate) fn to_json(&self) -> String {
        let mut bytes = Vec::new();
        self.write_into(&mut bytes);
        String::from_utf8(bytes).expect("JSON is text")
    }

    fn write_into(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Message(chunk) => write_field("message", chunk.as_str(), bytes),
            Self::Result(output) => write_field("result", output.as_str(), bytes),
            Self::Error(error) => {
                let error = serde_json::to_string(error).expect("an error is plain data");
                write_field("error", &error, bytes);
            }
        }
    }
}

/// Appends an object with one field.
fn write_field(name: &str, json: &str, bytes: &mut Vec<u8>) {
    bytes.reserve(name.len() + json.len() + 5);
    for piece in ["{\"", name, "\":", json, "}"] {
        bytes.extend_from_slice(piece.as_bytes());
    }
}

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
    use everturn_core::Exposure;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_of_data_and_a_blank_one() {
        let error = Error::not_found("no leeks")
            .with_public()
            .to_wire(Exposure::Public);

        assert_eq!(
            Event::Message(JsonText::of(&json!({"count": 0})).unwrap()).encode(),
            "data: {\"message\":{\"count\":0}}\n\n"
        );
        assert_eq!(
            Event::Result(JsonText::of("a\nb").unwrap()).encode(),
            "data: {\"result\":\"a\\nb\"}\n\n"
        );
        assert_eq!(
            Event::Error(error).encode(),
            "data: {\"error\":{\"status\":\"NOT_FOUND\",\"message\":\"no leeks\"}}\n\n"
        );
    }

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
