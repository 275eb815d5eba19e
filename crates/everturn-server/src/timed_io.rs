//! A connection that is closed when its peer does not read.
//!
//! It is the layer below HTTP and the WebSocket protocol, so one rule covers responses, streams and frames.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

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
    fn timed<R>(&mut self, written: Poll<Result<R>>, cx: &mut Context<'_>) -> Poll<Result<R>> {
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
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, message)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.timed(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.timed(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.timed(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
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

        assert_eq!(error.kind(), ErrorKind::TimedOut);
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
