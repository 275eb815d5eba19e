//! One call of an action on behalf of a request, which runs while its reader polls it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};

use everturn_core::offload::{is_heavy, offload};
use everturn_core::stream_log::JsonText;
use everturn_core::{
    ActionType, Connection, Context, DynAction, Emitter, Error, Exposure, JsonCall, Reason, RefusedBy,
    RequestId, Result,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::correlation::{keyed, log_failed_call};
use crate::event::{AnswerForm, Event};
use crate::permits::Permit;
use crate::request_body::Envelope;

/// A call that has not started.
pub(crate) struct ActionCall {
    pub(crate) action: Arc<dyn DynAction>,
    pub(crate) envelope: Envelope,
    pub(crate) context: Context,
    /// The permit for the values of a large request. They are decoded when the first chunk is sent.
    pub(crate) values: Option<Permit>,
}

impl ActionCall {
    /// Runs the action to its output. Dropping the future cancels the work unless it was detached.
    pub(crate) async fn run(self) -> Result<Value> {
        Box::new(self).perform(None).await
    }

    /// Starts the action, which runs at the pace at which its chunks are read.
    pub(crate) fn start(self, exposure: Exposure, form: AnswerForm) -> CallEvents {
        // Boxed to keep the futures below small.
        let call = Box::new(self);
        CallEvents::start(exposure, |emitter| async move {
            text_of(call.perform(Some(emitter)).await?, form).await
        })
    }

    /// Starts the action in a task that ends with the connection.
    pub(crate) fn connect(self) -> Connection<(), JsonText, JsonText> {
        let key = self.action.descriptor().key.clone();
        let context = self.context.clone();
        Connection::open(key, &context, |_inputs, emitter, context| async move {
            let output = Box::new(Self { context, ..self }).perform(Some(emitter)).await?;
            // The log stores every field, for all readers.
            Ok(text_of(output, AnswerForm::COMPLETE).await?)
        })
    }

    async fn perform(self: Box<Self>, emitter: Option<Emitter<JsonText>>) -> Result<Value> {
        // Moved out in a block, so that the box is freed before the wait.
        let Self {
            action,
            envelope,
            context,
            values,
        } = *{ self };
        let request = RequestId::of(&context);
        let context = if action.descriptor().action_type == ActionType::AGENT {
            keyed(context)
        } else {
            context
        };
        let call = JsonCall {
            input: envelope.data,
            init: envelope.init,
            context,
            emitter: match (emitter, values) {
                (Some(emitter), Some(values)) => Some(until_first_chunk(values, emitter)),
                (emitter, _) => emitter,
            },
        };
        let outcome = action.run_json(call).await;
        outcome.map_err(|error| {
            let error = public_to_its_sender(error, &action.descriptor().key);
            log_failed_call(&action.descriptor().key, &request, &error);
            error
        })
    }
}

/// Returns an emitter that drops a permit with the first chunk, or with the call.
fn until_first_chunk(permit: Permit, emitter: Emitter<JsonText>) -> Emitter<JsonText> {
    let permit = Mutex::new(Some(permit));
    Emitter::new(move |chunk| {
        drop(permit.lock().take());
        let emitter = emitter.clone();
        async move { Ok(emitter.send(chunk).await?) }
    })
}

/// Serialises an output in a caller's form, on a blocking thread if it is large.
pub(crate) async fn text_of(output: Value, form: AnswerForm) -> Result<JsonText> {
    if is_heavy(&output) {
        Box::pin(offload(move || JsonText::of(&form.output(output)))).await
    } else {
        JsonText::of(&form.output(output))
    }
}

/// Makes the error of an invalid input public, because the caller sent the input and the schema is public
/// too. An error about the input of another action that ran inside stays private.
pub(crate) fn public_to_its_sender(error: Error, key: &str) -> Error {
    let own = error
        .find_source::<RefusedBy>()
        .is_some_and(|refused| refused.key() == key);
    if own && error.is(Reason::INVALID_INPUT) && error.public_message().is_none() {
        error.with_public()
    } else {
        error
    }
}

/// A running streamed call, as its events.
pub(crate) struct CallEvents {
    call: PolledCall<JsonText, JsonText>,
    exposure: Exposure,
}

impl CallEvents {
    /// Starts a call, which runs as its events are read.
    pub(crate) fn start<F>(exposure: Exposure, work: impl FnOnce(Emitter<JsonText>) -> F) -> Self
    where
        F: Future<Output = Result<JsonText>> + Send + 'static,
    {
        Self {
            call: PolledCall::start(work),
            exposure,
        }
    }

    /// Drives the call until it has to wait, so that its first events are sent together with the head of the
    /// response.
    pub(crate) async fn run_ahead(&mut self) {
        self.call.run_ahead().await;
    }

    /// Returns the next event; `None` after the last.
    pub(crate) fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Event>> {
        Poll::Ready(match ready!(self.call.poll_chunk(cx)) {
            Some(chunk) => Some(Event::Message(chunk)),
            None => self.call.take_outcome().map(|outcome| match outcome {
                Ok(output) => Event::Result(output),
                Err(error) => Event::Error(error.to_wire(self.exposure)),
            }),
        })
    }
}

/// The maximum number of buffered chunks. Chunks that an action sends at once are written together.
pub(crate) const WAITING: usize = 32;

/// The number of times the task yields before it waits for the first chunk.
const HEAD_START: usize = 2;

/// A streaming call without its own task: reading its chunks drives it. A slow reader therefore slows the
/// action down, and no buffer grows. Dropping the call cancels the work, unless it was detached.
pub(crate) struct PolledCall<S, O> {
    work: Work<O>,
    chunks: mpsc::Receiver<S>,
}

enum Work<O> {
    Running(BoxFuture<'static, Result<O>>),
    /// The call has ended, and its outcome has not been taken.
    Ended(Result<O>),
    Over,
}

impl<S: Send + 'static, O> PolledCall<S, O> {
    /// Starts a call, which runs as its chunks are read.
    pub(crate) fn start<F>(work: impl FnOnce(Emitter<S>) -> F) -> Self
    where
        F: Future<Output = Result<O>> + Send + 'static,
    {
        let (sender, chunks) = mpsc::channel(WAITING);
        Self {
            work: Work::Running(Box::pin(work(Emitter::channel(sender)))),
            chunks,
        }
    }

    /// Drives the call until it waits, so that its first chunks are ready.
    pub(crate) async fn run_ahead(&mut self) {
        for _ in 0..HEAD_START {
            std::future::poll_fn(|cx| {
                self.poll_work(cx);
                Poll::Ready(())
            })
            .await;
            if !self.is_running() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the next chunk; `None` after the last, when the call has ended.
    pub(crate) fn poll_chunk(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<S>> {
        if let Poll::Ready(Some(chunk)) = self.chunks.poll_recv(cx) {
            return Poll::Ready(Some(chunk));
        }
        self.poll_work(cx);
        match self.chunks.poll_recv(cx) {
            Poll::Ready(Some(chunk)) => Poll::Ready(Some(chunk)),
            _ if self.is_running() => Poll::Pending,
            // The task has used up its cooperative budget and is woken to read the rest.
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
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.work, Work::Running(_))
    }

    fn poll_work(&mut self, cx: &mut task::Context<'_>) {
        if let Work::Running(work) = &mut self.work
            && let Poll::Ready(outcome) = Pin::new(work).poll(cx)
        {
            self.work = Work::Ended(outcome);
            // An emitter that outlives the action has no reader.
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

    async fn next(running: &mut CallEvents) -> Option<Event> {
        std::future::poll_fn(|cx| running.poll_next(cx)).await
    }

    #[tokio::test]
    async fn chunks_come_in_order_and_the_output_after_them() {
        let mut running = CallEvents::start(Exposure::Public, |emitter| async move {
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

    /// The runtime limits how much a task reads before it yields. The output must not overtake the remaining
    /// chunks.
    #[tokio::test]
    async fn the_output_comes_last_however_many_chunks_are_read_at_once() {
        for count in 100..300 {
            let mut running = CallEvents::start(Exposure::Public, move |emitter| async move {
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
        let mut running = CallEvents::start(Exposure::Public, |emitter| async move {
            emitter.send(JsonText::of("first")?).await?;
            let other = tokio::spawn(async { "done" });
            JsonText::of(other.await?)
        });

        running.run_ahead().await;

        assert!(!running.call.is_running());
        assert_eq!(next(&mut running).await, Some(message("first")));
        assert_eq!(next(&mut running).await, Some(done()));
    }

    #[tokio::test]
    async fn starting_a_call_does_not_wait_for_an_action_that_waits() {
        let mut running = CallEvents::start(Exposure::Public, |_| std::future::pending());

        running.run_ahead().await;

        assert!(running.call.is_running());
    }

    #[tokio::test]
    async fn an_error_comes_after_the_chunks_before_it() {
        let mut running = CallEvents::start(Exposure::Public, |emitter| async move {
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
        let mut running = CallEvents::start(Exposure::Public, |emitter| async move {
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
        let mut running = CallEvents::start(Exposure::Public, |emitter| async move {
            loop {
                emitter.send(JsonText::of("more")?).await?;
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });

        next(&mut running).await;

        assert_eq!(sent.load(Ordering::SeqCst), WAITING);
    }
}
