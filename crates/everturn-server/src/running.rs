//! A running streamed call, driven by its reader.

use std::pin::Pin;
use std::task::{Context, Poll};

use everturn_core::stream_log::JsonText;
use everturn_core::{Emitter, Exposure, Result};
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::event::Event;

/// The greatest number of chunks that wait for a reader. Chunks that an action sends in one go are written together.
const WAITING: usize = 32;

/// How often the task yields before it answers with a stream that has no events yet.
const HEAD_START: usize = 2;

/// A running streamed call.
///
/// The call has no task of its own: reading its events drives it. So a slow reader slows the action down and no buffer
/// grows. Dropping the call cancels the work, unless it was detached.
pub(crate) struct Running {
    work: Work,
    chunks: mpsc::Receiver<JsonText>,
    exposure: Exposure,
}

enum Work {
    UnderWay(BoxFuture<'static, Result<JsonText>>),
    /// The call has ended, and its last event is yet to be read.
    Ended(Event),
    Told,
}

impl Running {
    /// Starts a call, which runs as its events are read.
    pub(crate) fn begin<F>(exposure: Exposure, work: impl FnOnce(Emitter<JsonText>) -> F) -> Self
    where
        F: Future<Output = Result<JsonText>> + Send + 'static,
    {
        let (sender, chunks) = mpsc::channel(WAITING);
        Self {
            work: Work::UnderWay(Box::pin(work(Emitter::channel(sender)))),
            chunks,
            exposure,
        }
    }

    /// Drives the call until it has to wait, so that its first events are sent together with the head of the response.
    pub(crate) async fn get_going(&mut self) {
        for _ in 0..HEAD_START {
            std::future::poll_fn(|cx| {
                self.work_on(cx);
                Poll::Ready(())
            })
            .await;
            if !matches!(self.work, Work::UnderWay(_)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the next event; `None` after the last.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Poll::Ready(Some(chunk)) = self.chunks.poll_recv(cx) {
            return Poll::Ready(Some(Event::Message(chunk)));
        }
        self.work_on(cx);
        match self.chunks.poll_recv(cx) {
            Poll::Ready(Some(chunk)) => Poll::Ready(Some(Event::Message(chunk))),
            _ => match std::mem::replace(&mut self.work, Work::Told) {
                Work::Ended(event) => Poll::Ready(Some(event)),
                Work::Told => Poll::Ready(None),
                under_way @ Work::UnderWay(_) => {
                    self.work = under_way;
                    Poll::Pending
                }
            },
        }
    }

    fn work_on(&mut self, cx: &mut Context<'_>) {
        if let Work::UnderWay(work) = &mut self.work
            && let Poll::Ready(outcome) = Pin::new(work).poll(cx)
        {
            self.work = Work::Ended(match outcome {
                Ok(output) => Event::Result(output),
                Err(error) => Event::Error(error.to_wire(self.exposure)),
            });
            // An emitter that the action left behind has no reader any more.
            self.chunks.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Error;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn message(chunk: &(impl serde::Serialize + ?Sized)) -> Event {
        Event::Message(JsonText::of(chunk).unwrap())
    }

    fn done() -> Event {
        Event::Result(JsonText::of("done").unwrap())
    }

    async fn next(running: &mut Running) -> Option<Event> {
        std::future::poll_fn(|cx| running.poll_next(cx)).await
    }

    #[tokio::test]
    async fn chunks_come_in_order_and_the_output_after_them() {
        let mut running = Running::begin(Exposure::Public, |emitter| async move {
            for number in 0..100 {
                emitter.send(JsonText::of(&number)?).await?;
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            JsonText::of("done")
        });

        for number in 0..100 {
            assert_eq!(next(&mut running).await, Some(message(&number)));
        }
        assert_eq!(next(&mut running).await, Some(done()));
        assert_eq!(next(&mut running).await, None);
        assert_eq!(next(&mut running).await, None);
    }

    #[tokio::test]
    async fn an_action_that_never_waits_completes_before_the_first_event_is_read() {
        let mut running = Running::begin(Exposure::Public, |emitter| async move {
            emitter.send(JsonText::of("first")?).await?;
            let other = tokio::spawn(async { "done" });
            JsonText::of(other.await?)
        });

        running.get_going().await;

        assert!(matches!(running.work, Work::Ended(_)));
        assert_eq!(next(&mut running).await, Some(message("first")));
        assert_eq!(next(&mut running).await, Some(done()));
    }

    #[tokio::test]
    async fn starting_a_call_does_not_wait_for_an_action_that_waits() {
        let mut running = Running::begin(Exposure::Public, |_| std::future::pending());

        running.get_going().await;

        assert!(matches!(running.work, Work::UnderWay(_)));
    }

    #[tokio::test]
    async fn an_error_comes_after_the_chunks_before_it() {
        let mut running = Running::begin(Exposure::Public, |emitter| async move {
            emitter.send(JsonText::of("first")?).await?;
            Err(Error::not_found("no leeks").with_public())
        });

        assert_eq!(next(&mut running).await, Some(message("first")));
        assert!(matches!(next(&mut running).await, Some(Event::Error(_))));
        assert_eq!(next(&mut running).await, None);
    }

    #[tokio::test]
    async fn an_emitter_that_is_left_behind_holds_nothing_up() {
        let (give, left) = tokio::sync::oneshot::channel();
        let mut running = Running::begin(Exposure::Public, |emitter| async move {
            let _ = give.send(emitter);
            JsonText::of("done")
        });

        assert_eq!(next(&mut running).await, Some(done()));
        assert_eq!(next(&mut running).await, None);
        let late = JsonText::of("late").unwrap();
        let error = left.await.unwrap().send(late).await.unwrap_err();
        assert_eq!(error.status(), everturn_core::Status::Cancelled);
    }

    #[tokio::test]
    async fn an_action_runs_no_further_ahead_than_what_may_wait() {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let mut running = Running::begin(Exposure::Public, |emitter| async move {
            loop {
                emitter.send(JsonText::of("more")?).await?;
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });

        next(&mut running).await;

        assert_eq!(sent.load(Ordering::SeqCst), WAITING);
    }
}
