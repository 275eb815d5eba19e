//! Server-sent events as responses of adapters.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use futures::Stream;
use tokio::time::{Instant, Sleep, sleep};

use crate::handler::{WRITTEN_TOGETHER, event_stream};

/// A comment that keeps an idle connection open.
const HEARTBEAT: &[u8] = b": heartbeat\n\n";

/// The idle time before a heartbeat is sent.
const SILENCE: Duration = Duration::from_secs(15);

/// Creates a response whose body is these events, each with its trailing blank line. Events that are ready
/// together are written together, and heartbeats are sent while the stream is idle. Dropping the body drops
/// the events.
pub fn sse_response(events: impl Stream<Item = Vec<u8>> + Send + 'static) -> Response<Body> {
    event_stream(Body::from_stream(Written {
        events: Box::pin(events),
        silence: Box::pin(sleep(SILENCE)),
        is_over: false,
    }))
}

/// The body of the response.
struct Written<S> {
    events: Pin<Box<S>>,
    silence: Pin<Box<Sleep>>,
    is_over: bool,
}

impl<S: Stream<Item = Vec<u8>>> Stream for Written<S> {
    type Item = Result<Vec<u8>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut bytes = Vec::new();
        while !self.is_over && bytes.len() < WRITTEN_TOGETHER {
            match self.events.as_mut().poll_next(cx) {
                Poll::Ready(Some(event)) if bytes.is_empty() => bytes = event,
                Poll::Ready(Some(event)) => bytes.extend(event),
                Poll::Ready(None) => self.is_over = true,
                Poll::Pending => break,
            }
        }
        if bytes.is_empty() {
            if self.is_over {
                return Poll::Ready(None);
            }
            ready!(self.silence.as_mut().poll(cx));
            bytes = HEARTBEAT.to_vec();
        }
        self.silence.as_mut().reset(Instant::now() + SILENCE);
        Poll::Ready(Some(Ok(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures::{StreamExt, stream};

    use super::sse_response;

    async fn pieces(body: Body) -> Vec<String> {
        let pieces = body.into_data_stream();
        let pieces = pieces.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap());
        pieces.collect().await
    }

    #[tokio::test]
    async fn events_that_are_ready_are_written_together() {
        let events = stream::iter(["data: 1\n\n", "data: 2\n\n"].map(|event| event.as_bytes().to_vec()));

        assert_eq!(
            pieces(sse_response(events).into_body()).await,
            ["data: 1\n\ndata: 2\n\n"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_is_filled_with_heartbeats() {
        let late = async {
            everturn_testkit::elapse(std::time::Duration::from_secs(40)).await;
            b"data: 1\n\n".to_vec()
        };

        let written = pieces(sse_response(stream::once(late)).into_body()).await;

        assert_eq!(written, [": heartbeat\n\n", ": heartbeat\n\n", "data: 1\n\n"]);
    }
}
