//! A running bidirectional invocation, seen from the caller's side.
//!
//! Each direction buffers one element: a sender waits until the receiver has room. The rules:
//!
//! | situation | what happens |
//! |---|---|
//! | [`Connection::close`] | inputs sent or waiting to be sent are still processed; can be called again |
//! | the action returns early | unread inputs are discarded silently |
//! | send after completion, also after close | `FAILED_PRECONDITION`, [`Reason::ACTION_COMPLETED`] |
//! | send after close | `FAILED_PRECONDITION`, [`Reason::CONNECTION_CLOSED`] |
//! | dropping a [`Receive`] | cancels nothing; the next [`Receive`] continues with the next chunk |
//! | [`Connection::output`] | closes the input, drops unread chunks, waits; can be called again |
//! | dropping the connection | cancels the work and ends its task |
//! | the action panics | `INTERNAL` with [`Reason::PANIC`] |

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::{Context, Emitter, Error, HandlerResult, Reason, Result, catch_panic};

/// The caller's end of a bidirectional invocation: inputs go in, chunks come out, one output ends it.
///
/// Receiving and taking the output need the connection exclusively, so they cannot run at the same time;
/// another task can send with a [`Sender`] at the same time.
///
/// ```compile_fail,E0499
/// # async fn both(connection: &mut everturn_core::Connection<(), (), ()>) {
/// let mut chunks = connection.receive();
/// let output = connection.output();
/// tokio::join!(chunks.next(), output);
/// # }
/// ```
pub struct Connection<I, O, S> {
    sender: Sender<I>,
    chunks: Chunks<S>,
    outcome: Outcome<O>,
    context: Context,
    // Cancelling also ends work that the action handed to other tasks; aborting ends only the action itself.
    _cancel: DropGuard,
    _work: AbortOnDropHandle<()>,
}

/// The chunks of an action. They end when every emitter is dropped, and at the latest when the action has
/// completed, even if an emitter outlives it.
struct Chunks<S> {
    receiver: mpsc::Receiver<Box<S>>,
    completed: CancellationToken,
    completion: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Chunks<S> {
    fn poll_next(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Option<S>> {
        if !self.completed.is_cancelled() {
            if let Poll::Ready(next) = self.receiver.poll_recv(cx) {
                return Poll::Ready(next.map(|chunk| *chunk));
            }
            ready!(self.completion.as_mut().poll(cx));
        }
        // The action's last chunk is in the channel by now. Only an emitter that outlives the action can
        // still send, and closing the channel refuses its chunks.
        self.receiver.close();
        Poll::Ready(self.receiver.try_recv().ok().map(|chunk| *chunk))
    }

    async fn next(&mut self) -> Option<S> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

enum Outcome<O> {
    Pending(oneshot::Receiver<Result<O>>),
    Ready(Result<O>),
}

/// The sending side of a connection, for another task. Cloning is cheap.
pub struct Sender<I> {
    inputs: Arc<Mutex<Option<mpsc::Sender<Box<I>>>>>,
    completed: CancellationToken,
}

/// The inputs of a bidirectional invocation, seen from the action's side: a stream that ends when the caller
/// closes.
pub struct Inputs<I>(Pin<Box<dyn Stream<Item = I> + Send>>);

/// The stream of an action's chunks as they arrive; it ends when the action has no more to send.
pub struct Receive<'a, S> {
    chunks: &'a mut Chunks<S>,
}

impl<I, O, S> Connection<I, O, S>
where
    I: Send + 'static,
    O: Send + 'static,
    S: Send + 'static,
{
    /// Starts `action` in its own task that lives no longer than the connection.
    ///
    /// The error of a panic names `name`.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn open<F, Fut>(name: impl Into<String>, context: &Context, action: F) -> Self
    where
        F: FnOnce(Inputs<I>, Emitter<S>, Context) -> Fut + Send + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        let name = name.into();
        let context = context.child();
        let completed = CancellationToken::new();
        // Both carry boxes, because a channel allocates 32 slots at once, whatever its capacity.
        let (input_sender, input_receiver) = mpsc::channel(1);
        let (chunk_sender, receiver) = mpsc::channel(1);
        let emitter = Emitter::channel(chunk_sender).map_from(|chunk| Ok(Box::new(chunk)));
        let (outcome_sender, outcome) = oneshot::channel();

        let work = {
            let context = context.clone();
            // Cancelled when the task ends in any way, a panic included, so that no sender waits for a dead
            // action.
            let completion = completed.clone().drop_guard();
            async move {
                let inputs = Inputs::from_receiver(input_receiver);
                // Boxed, because each wrapper around the future would otherwise hold it by value on the
                // stack.
                let running = Box::pin(async { Ok(action(inputs, emitter, context.clone()).await?) });
                let running = catch_panic(&name, running);
                let result = context.clone().scope(context.guard(running)).await;
                // Before the result is sent, so that a caller that has the output finds the action completed.
                drop(completion);
                // Sending fails only if the caller dropped the connection, and then the result is not needed.
                let _ = outcome_sender.send(result);
            }
        };
        let work = tokio::spawn(work.in_current_span());
        Self {
            chunks: Chunks {
                receiver,
                completed: completed.clone(),
                completion: Box::pin(completed.clone().cancelled_owned()),
            },
            sender: Sender {
                inputs: Arc::new(Mutex::new(Some(input_sender))),
                completed,
            },
            outcome: Outcome::Pending(outcome),
            _cancel: context.cancellation().clone().drop_guard(),
            context,
            _work: AbortOnDropHandle::new(work),
        }
    }

    /// Sends one input and waits until there is room for it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` after completion or close (see the module's table).
    pub async fn send(&self, input: I) -> Result<()> {
        self.sender.send(input).await
    }

    /// Closes the input. The action still reads the inputs that were already sent.
    pub fn close(&self) {
        self.sender.close();
    }

    /// Returns a handle for sending from another place, for example while another task receives.
    pub fn sender(&self) -> Sender<I> {
        self.sender.clone()
    }

    /// Returns the stream of chunks not received yet. Dropping it cancels nothing; later chunks wait.
    pub fn receive(&mut self) -> Receive<'_, S> {
        Receive {
            chunks: &mut self.chunks,
        }
    }

    /// Waits until the action has completed. An action that streams completes only if its chunks are
    /// received.
    pub async fn done(&self) {
        self.sender.completed.cancelled().await;
    }

    /// Returns whether the action has completed.
    pub fn is_done(&self) -> bool {
        self.sender.completed.is_cancelled()
    }

    /// Cancels the work; [`Connection::output`] then reports `CANCELLED` unless the action was faster.
    pub fn cancel(&self) {
        self.context.cancel();
    }

    /// Closes the input, drops unread chunks and waits for the action's output. Later calls return the same
    /// output.
    ///
    /// # Errors
    /// The error the action failed with; `CANCELLED` or `DEADLINE_EXCEEDED` if the invocation was cut short.
    pub async fn output(&mut self) -> Result<O>
    where
        O: Clone,
    {
        self.drain().await;
        match &self.outcome {
            Outcome::Ready(result) => result.clone(),
            Outcome::Pending(_) => Err(lost()),
        }
    }

    /// Like [`Connection::output`], for an output that cannot be cloned; consumes the connection.
    ///
    /// # Errors
    /// As [`Connection::output`].
    pub async fn into_output(mut self) -> Result<O> {
        self.drain().await;
        match self.outcome {
            Outcome::Ready(result) => result,
            Outcome::Pending(_) => Err(lost()),
        }
    }

    async fn drain(&mut self) {
        self.close();
        if let Outcome::Pending(outcome) = &mut self.outcome {
            // An action that streams completes only if its chunks are taken.
            while self.chunks.next().await.is_some() {}
            let result = outcome.await.unwrap_or_else(|_| Err(lost()));
            self.outcome = Outcome::Ready(result);
        }
    }
}

/// Creates the error for a task that ended without a result, which happens only when its runtime shuts down.
fn lost() -> Error {
    Error::cancelled("the action was dropped before it completed")
}

impl<I: Send + 'static> Sender<I> {
    /// Sends one input and waits until there is room for it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` with [`Reason::ACTION_COMPLETED`] once the action has completed, else with
    /// [`Reason::CONNECTION_CLOSED`] once the input was closed.
    pub async fn send(&self, input: I) -> Result<()> {
        if self.completed.is_cancelled() {
            return Err(completed());
        }
        let inputs = self.inputs.lock().clone();
        let Some(inputs) = inputs else {
            return Err(Error::failed_precondition(
                "the connection is closed; open another one to send more",
            )
            .with_reason(Reason::CONNECTION_CLOSED));
        };
        tokio::select! {
            // Completion is checked first: the action never reads an input that still fits into the channel.
            biased;
            () = self.completed.cancelled() => Err(completed()),
            // Fails if the action has dropped its inputs and still runs: it will not read this one.
            sent = inputs.send(Box::new(input)) => sent.map_err(|_| completed()),
        }
    }

    /// Closes the input. The action still reads the inputs that were already sent.
    pub fn close(&self) {
        self.inputs.lock().take();
    }
}

fn completed() -> Error {
    Error::failed_precondition("the action has completed and takes no more input")
        .with_reason(Reason::ACTION_COMPLETED)
}

impl<I> Clone for Sender<I> {
    fn clone(&self) -> Self {
        Self {
            inputs: Arc::clone(&self.inputs),
            completed: self.completed.clone(),
        }
    }
}

impl<I: Send + 'static> Inputs<I> {
    fn from_receiver(mut receiver: mpsc::Receiver<Box<I>>) -> Self {
        Self(Box::pin(futures::stream::poll_fn(move |cx| {
            receiver.poll_recv(cx).map(|next| next.map(|input| *input))
        })))
    }

    /// Creates inputs from any stream.
    pub fn from_stream(stream: impl Stream<Item = I> + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }

    /// Returns the next input, or `None` once the caller has closed and every input was read.
    pub async fn next(&mut self) -> Option<I> {
        std::future::poll_fn(|cx| self.0.as_mut().poll_next(cx)).await
    }
}

impl<I> Stream for Inputs<I> {
    type Item = I;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Option<I>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl<S> Receive<'_, S> {
    /// Returns the next chunk, or `None` once the action has no more to send.
    pub async fn next(&mut self) -> Option<S> {
        self.chunks.next().await
    }
}

impl<S> Stream for Receive<'_, S> {
    type Item = S;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Option<S>> {
        self.chunks.poll_next(cx)
    }
}

/// A running streaming call: chunks first, then one output.
///
/// It is a [`Stream`] of chunks; dropping it cancels the work.
pub struct Streaming<O, S>(Connection<(), O, S>);

impl<O: Send + 'static, S: Send + 'static> Streaming<O, S> {
    pub(crate) fn start<F, Fut>(name: impl Into<String>, context: &Context, action: F) -> Self
    where
        F: FnOnce(Emitter<S>, Context) -> Fut + Send + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        Self(Connection::open(name, context, |_inputs, emitter, context| {
            action(emitter, context)
        }))
    }

    /// Returns the next chunk, or `None` once there are no more.
    pub async fn next(&mut self) -> Option<S> {
        self.0.chunks.next().await
    }

    /// Drops unread chunks and waits for the output. Later calls return the same output.
    ///
    /// # Errors
    /// The error the action failed with.
    pub async fn output(&mut self) -> Result<O>
    where
        O: Clone,
    {
        self.0.output().await
    }

    /// Like [`Streaming::output`] for an output that cannot be cloned.
    ///
    /// # Errors
    /// The error the action failed with.
    pub async fn into_output(self) -> Result<O> {
        self.0.into_output().await
    }

    /// Cancels the work.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

// A connection holds no pinned data, so it can be moved while it is polled.
impl<I, O, S> Unpin for Connection<I, O, S> {}

impl<O, S> Stream for Streaming<O, S> {
    type Item = S;

    fn poll_next(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Option<S>> {
        self.get_mut().0.chunks.poll_next(cx)
    }
}

crate::opaque_debug!(Connection<I, O, S>);
crate::opaque_debug!(Streaming<O, S>);
crate::opaque_debug!(Sender<I>);
crate::opaque_debug!(Inputs<I>);
crate::opaque_debug!(Receive<'a, S>);
