//! Event streams as responses.

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use everturn_server::sse_response;
use futures::Stream;

/// Creates a response whose body is these events.
pub(crate) fn event_stream(events: impl Stream<Item = Vec<u8>> + Send + 'static) -> Response<Body> {
    let mut response = sse_response(events);
    // The surface names the charset.
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
