//! Event streams as responses.

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use everturn_server::sse_response;
use futures::{Stream, StreamExt};

use crate::event::Event;

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
