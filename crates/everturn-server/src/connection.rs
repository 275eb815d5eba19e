//! One connection: its requests, and the time that its peer may leave data unread.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The address of the machine at the other end, as an extension of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Passes the requests of one connection to the router and counts the active ones: from the last byte of a
/// request's head to the last byte of its response.
pub(crate) struct Requests {
    router: TowerToHyperService<Router>,
    peer: Peer,
    active: Arc<AtomicUsize>,
}

impl Requests {
    pub(crate) fn new(router: Router, peer: IpAddr) -> Self {
        Self {
            router: TowerToHyperService::new(router),
            peer: Peer(peer),
            active: Arc::default(),
        }
    }

    /// Returns the live counter of active requests.
    pub(crate) fn active(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.active)
    }
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let counted = Counted::new(&self.active);
        request.extensions_mut().insert(self.peer);
        let answering = self.router.call(request);
        Box::pin(async move {
            let response = answering.await?;
            Ok(response.map(|body| CountedBody {
                body,
                _counted: counted,
            }))
        })
    }
}

/// Counts one request until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(active: &Arc<AtomicUsize>) -> Self {
        active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(active))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response, whose request is active until the body is sent.
pub(crate) struct CountedBody {
    body: Body,
    _counted: Counted,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection on which a write fails with `TimedOut` once the peer has taken nothing for the write time.
///
/// The time starts when a write has to wait, and restarts with every byte that the peer reads. A slow reader
/// is therefore served to the end, and a peer that has stopped reading frees the buffers of its response.
#[derive(Debug)]
pub(crate) struct TimedIo<T> {
    io: T,
    write_time: Duration,
    /// The end of the present wait; `None` while nothing waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<T> TimedIo<T> {
    pub(crate) fn new(io: T, write_time: Duration) -> Self {
        Self {
            io,
            write_time,
            waiting: None,
        }
    }

    /// Passes on the outcome of a write, or an error if it has been waited for too long.
    fn timed<R>(&mut self, written: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let time = self.write_time;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        ready!(waiting.as_mut().poll(cx));
        let message = format!("the client has read nothing for {} seconds", time.as_secs_f64());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.timed(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.timed(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.timed(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.timed(shut, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_given_up() {
        let (near, _far) = tokio::io::duplex(16);
        let mut near = TimedIo::new(near, TIME);
        let begun = tokio::time::Instant::now();

        let error = near.write_all(&[0; 64]).await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), TIME.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_is_waited_for() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = TimedIo::new(near, TIME);
        let reading = async {
            let mut taken = [0; 16];
            for _ in 0..4 {
                everturn_testkit::elapse(TIME / 2).await;
                far.read_exact(&mut taken).await.unwrap();
            }
        };

        let (written, ()) = tokio::join!(near.write_all(&[0; 64]), reading);

        assert!(written.is_ok());
    }
}
