//! Work that its reader drives.

use std::pin::Pin;
use std::task::{Context, Poll};

use everturn_core::{Emitter, Result};
use futures::future::BoxFuture;
use tokio::sync::mpsc;

/// The greatest number of chunks that wait for a reader. Chunks that an action sends in one go are written together.
pub(crate) const WAITING: usize = 32;

/// How often the task yields before the first chunk is waited for.
const HEAD_START: usize = 2;

/// A call that streams, without a task of its own: reading its chunks drives it. So a slow reader slows the action down and
/// no buffer grows. Dropping the call cancels the work, unless it was detached.
pub(crate) struct Driven<S, O> {
    work: Work<O>,
    chunks: mpsc::Receiver<S>,
}

enum Work<O> {
    UnderWay(BoxFuture<'static, Result<O>>),
    /// The call has ended, and its outcome is yet to be taken.
    Ended(Result<O>),
    Over,
}

impl<S: Send + 'static, O> Driven<S, O> {
    /// Starts a call, which runs as its chunks are read.
    pub(crate) fn begin<F>(work: impl FnOnce(Emitter<S>) -> F) -> Self
    where
        F: Future<Output = Result<O>> + Send + 'static,
    {
        let (sender, chunks) = mpsc::channel(WAITING);
        Self {
            work: Work::UnderWay(Box::pin(work(Emitter::channel(sender)))),
            chunks,
        }
    }

    /// Drives the call until it has to wait, so that its first chunks are there at once.
    pub(crate) async fn get_going(&mut self) {
        for _ in 0..HEAD_START {
            std::future::poll_fn(|cx| {
                self.work_on(cx);
                Poll::Ready(())
            })
            .await;
            if !self.is_under_way() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the next chunk; `None` after the last, when the call has ended.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<S>> {
        if let Poll::Ready(Some(chunk)) = self.chunks.poll_recv(cx) {
            return Poll::Ready(Some(chunk));
        }
        self.work_on(cx);
        match self.chunks.poll_recv(cx) {
            Poll::Ready(Some(chunk)) => Poll::Ready(Some(chunk)),
            _ if self.is_under_way() => Poll::Pending,
            // The task has used up its share of the runtime's time, and is woken to read the rest.
            Poll::Pending if !self.chunks.is_empty() => Poll::Pending,
            _ => Poll::Ready(None),
        }
    }

    /// Returns the outcome of a call that has ended; `None` before that, and after it was taken.
    pub(crate) fn take_outcome(&mut self) -> Option<Result<O>> {
        match std::mem::replace(&mut self.work, Work::Over) {
            Work::Ended(outcome) => Some(outcome),
            other => {
                self.work = other;
                None
            }
        }
    }

    /// Returns whether the call has not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.work, Work::UnderWay(_))
    }

    fn work_on(&mut self, cx: &mut Context<'_>) {
        if let Work::UnderWay(work) = &mut self.work
            && let Poll::Ready(outcome) = Pin::new(work).poll(cx)
        {
            self.work = Work::Ended(outcome);
            // An emitter that the action left behind has no reader any more.
            self.chunks.close();
        }
    }
}
