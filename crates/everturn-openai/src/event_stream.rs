//! Event streams as responses.

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};

/// A comment that keeps a silent connection open.
pub(crate) const HEARTBEAT: &[u8] = b": heartbeat\n\n";

/// After how many seconds of silence a heartbeat is sent.
pub(crate) const HEARTBEAT_TIME: u64 = 15;

/// Creates a response whose body is a stream of events.
pub(crate) fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A proxy that buffers a response would defeat streaming.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
