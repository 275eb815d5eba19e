//! Emitters, with which a streaming action sends its chunks.

use std::fmt;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::TryFutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::{Error, HandlerResult, Result};

type SendFn<S> = dyn Fn(S) -> Sending + Send + Sync;

/// Sends an action's chunks to the caller. Cloning is cheap.
///
/// If the caller did not ask for a stream, the emitter is *silent*: sending does nothing. An action can check
/// [`Emitter::is_streaming`] and skip creating chunks.
pub struct Emitter<S>(Option<Arc<SendFn<S>>>);

/// The future of a chunk being sent; it completes when the receiver has taken or buffered the chunk.
#[must_use = "a sender that does not await this does not wait for a slow receiver"]
pub struct Sending(Progress);

enum Progress {
    Done(Result<()>),
    Waiting(BoxFuture<'static, Result<()>>),
}

impl Sending {
    /// Returns whether the chunk was delivered or refused at once, so that the next one cannot overtake it.
    pub fn is_in_order(&self) -> bool {
        matches!(self.0, Progress::Done(_))
    }
}

impl Future for Sending {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.0 {
            Progress::Done(outcome) => Poll::Ready(std::mem::replace(outcome, Ok(()))),
            Progress::Waiting(sending) => sending.as_mut().poll(cx),
        }
    }
}

impl<S: Send + 'static> Emitter<S> {
    /// Creates an emitter that drops every chunk.
    pub const fn silent() -> Self {
        Self(None)
    }

    /// Creates an emitter that passes each chunk to `send`. The action waits for the future that `send`
    /// returns, which is how a slow receiver slows the action down.
    pub fn new<F, Fut>(send: F) -> Self
    where
        F: Fn(S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<()>> + Send + 'static,
    {
        Self(Some(Arc::new(move |chunk| {
            Sending(Progress::Waiting(Box::pin(send(chunk).err_into())))
        })))
    }

    /// Like [`Emitter::new`], for receivers that usually have room. `place` delivers a chunk at once and
    /// returns the result, or returns the chunk if there is no room; then `send` sends it.
    pub fn placing<P, F, Fut>(place: P, send: F) -> Self
    where
        P: Fn(S) -> ControlFlow<Result<()>, S> + Send + Sync + 'static,
        F: Fn(S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<()>> + Send + 'static,
    {
        Self(Some(Arc::new(move |chunk| {
            Sending(match place(chunk) {
                ControlFlow::Break(outcome) => Progress::Done(outcome),
                ControlFlow::Continue(chunk) => Progress::Waiting(Box::pin(send(chunk).err_into())),
            })
        })))
    }

    /// Creates an emitter that sends to a channel; sending fails with `CANCELLED` once the receiver is
    /// dropped.
    pub fn channel(sender: mpsc::Sender<S>) -> Self {
        let gone = || Error::cancelled("the receiver of the stream was dropped");
        let place = sender.clone();
        Self::placing(
            move |chunk| match place.try_send(chunk) {
                Ok(()) => ControlFlow::Break(Ok(())),
                Err(TrySendError::Full(chunk)) => ControlFlow::Continue(chunk),
                Err(TrySendError::Closed(_)) => ControlFlow::Break(Err(gone())),
            },
            move |chunk| {
                let sender = sender.clone();
                async move { Ok(sender.send(chunk).await.map_err(|_| gone())?) }
            },
        )
    }

    /// Creates an emitter of `T` that converts each chunk and sends it on this emitter; silent if this one
    /// is.
    pub fn map_from<T: Send + 'static>(
        &self,
        convert: impl Fn(T) -> HandlerResult<S> + Send + Sync + 'static,
    ) -> Emitter<T> {
        let Some(send) = self.0.clone() else {
            return Emitter::silent();
        };
        Emitter(Some(Arc::new(move |chunk| match convert(chunk) {
            Ok(chunk) => send(chunk),
            Err(error) => Sending(Progress::Done(Err(error.into()))),
        })))
    }

    /// Returns whether chunks are delivered to a receiver.
    pub fn is_streaming(&self) -> bool {
        self.0.is_some()
    }

    /// Sends one chunk; the returned future completes when the receiver has room for it.
    ///
    /// # Errors
    /// The receiver's error; `CANCELLED` if the receiver is dropped. A silent emitter never fails.
    pub fn send(&self, chunk: S) -> Sending {
        match &self.0 {
            Some(send) => send(chunk),
            None => Sending(Progress::Done(Ok(()))),
        }
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Progress::Done(_) => "Sending(done)",
            Progress::Waiting(_) => "Sending(waiting)",
        })
    }
}

impl<S> Clone for Emitter<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> fmt::Debug for Emitter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Emitter(streaming)"
        } else {
            "Emitter(silent)"
        })
    }
}
