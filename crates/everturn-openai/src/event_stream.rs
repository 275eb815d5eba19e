//! Event streams as responses.

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};

/// A comment that keeps a silent connection open.
pub(crate) const HEARTBEAT: &[u8] = b": heartbeat\n\n";

/// After how many seconds of silence a heartbeat is sent.
pub(crate) const HEARTBEAT_TIME: u64 = 15;

/// Creates a response whose body is a stream of events.
pub(crate) fn event_stream(body: Body) -> Response<Body> {
    let mut response = everturn_server::event_stream(body);
    // The surface names the charset.
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
