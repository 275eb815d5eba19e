//! The way out for chunks of a streaming action.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{Error, Result};

type SendFn<S> = dyn Fn(S) -> BoxFuture<'static, Result<()>> + Send + Sync;

/// Where an action sends its chunks. Cloning is cheap.
///
/// A caller that did not ask for a stream leaves the emitter *silent*: sending does nothing, and the action can see it
/// with [`Emitter::is_streaming`] and spare itself the work.
pub struct Emitter<S>(Option<Arc<SendFn<S>>>);

impl<S: Send + 'static> Emitter<S> {
    /// An emitter nobody listens to.
    pub const fn silent() -> Self {
        Self(None)
    }

    /// An emitter that hands each chunk to `send` and waits for its future: that is the backpressure.
    pub fn new<F, Fut>(send: F) -> Self
    where
        F: Fn(S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self(Some(Arc::new(move |chunk| Box::pin(send(chunk)))))
    }

    /// An emitter that feeds a channel; sending fails with `CANCELLED` once the receiver is gone.
    pub fn channel(sender: tokio::sync::mpsc::Sender<S>) -> Self {
        Self::new(move |chunk| {
            let sender = sender.clone();
            async move {
                sender
                    .send(chunk)
                    .await
                    .map_err(|_| Error::cancelled("nobody receives the stream any more"))
            }
        })
    }

    /// An emitter of another type that converts each chunk and passes it on here; silent if this one is.
    pub fn map_from<T: Send + 'static>(
        &self,
        convert: impl Fn(T) -> Result<S> + Send + Sync + 'static,
    ) -> Emitter<T> {
        let Some(send) = self.0.clone() else {
            return Emitter::silent();
        };
        Emitter(Some(Arc::new(move |chunk| match convert(chunk) {
            Ok(chunk) => send(chunk),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        })))
    }

    /// Whether somebody listens.
    pub fn is_streaming(&self) -> bool {
        self.0.is_some()
    }

    /// Sends one chunk and waits until the receiver has room for it.
    ///
    /// # Errors
    /// What the receiver reports; `CANCELLED` if it is gone. Nothing on a silent emitter.
    pub async fn send(&self, chunk: S) -> Result<()> {
        match &self.0 {
            Some(send) => send(chunk).await,
            None => Ok(()),
        }
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
