//! The bodies of event streams.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use everturn_core::stream_log::JsonText;
use futures::{Stream, StreamExt};

/// A comment that keeps a silent connection open.
const HEARTBEAT: &[u8] = b": heartbeat\n\n";

/// After how long a silence a heartbeat is sent.
const SILENCE: Duration = Duration::from_secs(15);

/// Returns the body of a stream: each event on a line of its own, and heartbeats between them. Dropping the body drops the
/// events.
pub(crate) fn lines(events: impl Stream<Item = Vec<JsonText>> + Send + 'static) -> Body {
    let bytes = futures::stream::unfold(Box::pin(events), |mut events| async move {
        let bytes = match tokio::time::timeout(SILENCE, events.next()).await {
            Err(_) => HEARTBEAT.to_vec(),
            Ok(next) => {
                let line = |event: JsonText| format!("data: {event}\n\n").into_bytes();
                next?.into_iter().flat_map(line).collect()
            }
        };
        Some((Ok::<_, Infallible>(bytes), events))
    });
    Body::from_stream(bytes)
}
