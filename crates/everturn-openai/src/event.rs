//! Events, and responses whose bodies are events.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use everturn_core::stream_log::JsonText;
use everturn_server::sse_response;
use futures::{Stream, StreamExt};
use serde::Serialize;
use serde_json::json;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: Cow<'static, str>,
    pub(crate) number: u64,
    /// The data, with the event's type and number.
    pub(crate) data: JsonText,
}

#[derive(Serialize)]
struct Data<'a, T> {
    #[serde(rename = "type")]
    name: &'a str,
    sequence_number: u64,
    #[serde(flatten)]
    fields: T,
}

impl Event {
    /// Creates an event with its type, its number and these fields.
    pub(crate) fn new(name: &'static str, number: u64, fields: impl Serialize) -> Self {
        let data = Data {
            name,
            sequence_number: number,
            fields,
        };
        Self {
            name: name.into(),
            number,
            data: JsonText::of(&data).expect("an event is plain data"),
        }
    }

    /// Creates the event of a stream that failed, in both forms that clients accept.
    pub(crate) fn error(number: u64, code: &str, message: &str) -> Self {
        let error =
            json!({ "type": "invalid_request_error", "code": code, "message": message, "param": null });
        let fields = json!({ "code": code, "message": message, "param": null, "error": error });
        Self::new("error", number, fields)
    }
}

/// Creates a response whose body is these events, which arrive in groups.
pub(crate) fn event_stream(events: impl Stream<Item = Vec<Event>> + Send + 'static) -> Response<Body> {
    byte_stream(events.map(|events| lines(&events)))
}

/// Creates a response whose body is the events with these bytes.
pub(crate) fn byte_stream(events: impl Stream<Item = Vec<u8>> + Send + 'static) -> Response<Body> {
    let mut response = sse_response(events);
    // OpenAI's API includes the charset.
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn lines(events: &[Event]) -> Vec<u8> {
    let mut lines = Vec::new();
    for Event { name, data, .. } in events {
        for piece in ["event: ", name, "\ndata: ", data.as_str(), "\n\n"] {
            lines.extend_from_slice(piece.as_bytes());
        }
    }
    lines
}
