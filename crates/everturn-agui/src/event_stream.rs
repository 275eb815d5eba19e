//! Event streams as responses.

use axum::body::Body;
use axum::http::Response;
use everturn_core::stream_log::JsonText;
use everturn_server::sse_response;
use futures::{Stream, StreamExt};

/// Creates a response whose body is these events, one per line. Dropping the body drops the events.
pub(crate) fn event_stream(events: impl Stream<Item = Vec<JsonText>> + Send + 'static) -> Response<Body> {
    sse_response(events.map(|events| {
        let lines = events.iter().map(|event| format!("data: {event}\n\n"));
        lines.collect::<String>().into_bytes()
    }))
}
