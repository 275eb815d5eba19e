//! A running streamed call, driven by its reader.

use std::task::{Context, Poll, ready};

use everturn_core::stream_log::JsonText;
use everturn_core::{Emitter, Exposure, Result};

use crate::driven::Driven;
use crate::event::Event;

/// A running streamed call, as its events.
pub(crate) struct Running {
    driven: Driven<JsonText, JsonText>,
    exposure: Exposure,
}

impl Running {
    /// Starts a call, which runs as its events are read.
    pub(crate) fn begin<F>(exposure: Exposure, work: impl FnOnce(Emitter<JsonText>) -> F) -> Self
    where
        F: Future<Output = Result<JsonText>> + Send + 'static,
    {
        Self {
            driven: Driven::begin(work),
            exposure,
        }
    }

    /// Drives the call until it has to wait, so that its first events are sent together with the head of the response.
    pub(crate) async fn get_going(&mut self) {
        self.driven.get_going().await;
    }

    /// Returns the next event; `None` after the last.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        Poll::Ready(match ready!(self.driven.poll_chunk(cx)) {
            Some(chunk) => Some(Event::Message(chunk)),
            None => self.driven.take_outcome().map(|outcome| match outcome {
                Ok(output) => Event::Result(output),
                Err(error) => Event::Error(error.to_wire(self.exposure)),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Error;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::driven::WAITING;

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

    /// A task may read only so much before the runtime lets others run; the output must not overtake what is left.
    #[tokio::test]
    async fn the_output_comes_last_however_many_chunks_are_read_at_once() {
        for count in 100..300 {
            let mut running = Running::begin(Exposure::Public, move |emitter| async move {
                for number in 0..count {
                    emitter.send(JsonText::of(&number)?).await?;
                }
                JsonText::of("done")
            });
            let mut events = Vec::new();
            std::future::poll_fn(|cx| {
                while let Poll::Ready(event) = running.poll_next(cx) {
                    match event {
                        Some(event) => events.push(event),
                        None => return Poll::Ready(()),
                    }
                }
                Poll::Pending
            })
            .await;

            assert_eq!(events.len(), count + 1);
            assert_eq!(events.last(), Some(&done()), "{count} chunks");
        }
    }

    #[tokio::test]
    async fn an_action_that_never_waits_completes_before_the_first_event_is_read() {
        let mut running = Running::begin(Exposure::Public, |emitter| async move {
            emitter.send(JsonText::of("first")?).await?;
            let other = tokio::spawn(async { "done" });
            JsonText::of(other.await?)
        });

        running.get_going().await;

        assert!(!running.driven.is_under_way());
        assert_eq!(next(&mut running).await, Some(message("first")));
        assert_eq!(next(&mut running).await, Some(done()));
    }

    #[tokio::test]
    async fn starting_a_call_does_not_wait_for_an_action_that_waits() {
        let mut running = Running::begin(Exposure::Public, |_| std::future::pending());

        running.get_going().await;

        assert!(running.driven.is_under_way());
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
