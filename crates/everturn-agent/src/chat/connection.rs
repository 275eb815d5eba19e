//! An open invocation, from its client's side.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use everturn_ai::{Answers, Message};
use everturn_core::{Connection, Result, Sender};
use futures::Stream;
use serde_json::Value;

use crate::storage::session_state::decode_custom;
use crate::{AgentInput, AgentOutput, AgentStreamChunk, CustomState};

/// The custom state according to the patches received so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct CustomView(Option<Arc<Value>>);

impl CustomView {
    pub(crate) fn new(custom: Option<Arc<Value>>) -> Self {
        Self(custom)
    }

    /// Applies the patch of a chunk. A patch that does not fit is ignored: the next turn's first patch
    /// replaces the document.
    pub(crate) fn take_in(&mut self, chunk: &AgentStreamChunk) {
        if let Some(patch) = &chunk.custom_patch
            && let Ok(patched) = patch.apply_shared(self.0.as_ref())
        {
            self.0 = Some(patched);
        }
    }

    pub(crate) fn json(&self) -> Option<&Arc<Value>> {
        self.0.as_ref()
    }

    pub(crate) fn decode<S: CustomState>(&self) -> Result<S> {
        decode_custom(self.0.as_deref())
    }
}

/// An open invocation: many turns over one connection.
///
/// Inputs are run one after the other, each answered by chunks up to its `turnEnd`. Dropping the connection
/// cancels the work unless it was detached. See [`Connection`] for the rules of every connection.
pub struct AgentConnection<S = Value> {
    connection: Connection<AgentInput, AgentOutput, AgentStreamChunk>,
    custom: CustomView,
    state: PhantomData<fn() -> S>,
}

impl<S: CustomState> AgentConnection<S> {
    /// Wraps a connection that was opened through an [`AgentTransport`](crate::AgentTransport).
    pub fn new(connection: Connection<AgentInput, AgentOutput, AgentStreamChunk>) -> Self {
        Self {
            connection,
            custom: CustomView::default(),
            state: PhantomData,
        }
    }

    /// Sends one input and waits until there is room for it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` after the agent completed, or after [`AgentConnection::close`].
    pub async fn send(&self, input: impl Into<AgentInput>) -> Result<()> {
        self.connection.send(input.into()).await
    }

    /// Sends a text, like [`AgentConnection::send`].
    ///
    /// # Errors
    /// As [`AgentConnection::send`].
    pub async fn send_text(&self, text: impl Into<String>) -> Result<()> {
        self.send(text.into()).await
    }

    /// Sends a message, like [`AgentConnection::send`].
    ///
    /// # Errors
    /// As [`AgentConnection::send`].
    pub async fn send_message(&self, message: impl Into<Message>) -> Result<()> {
        self.send(message.into()).await
    }

    /// Answers interrupts; as [`AgentConnection::send`].
    ///
    /// # Errors
    /// As [`AgentConnection::send`].
    pub async fn answer(&self, answers: impl Into<Answers>) -> Result<()> {
        self.send(answers.into()).await
    }

    /// Detaches: the inputs sent so far are run in the background. [`AgentConnection::output`] then names the
    /// run's snapshot.
    ///
    /// # Errors
    /// As [`AgentConnection::send`].
    pub async fn detach(&self) -> Result<()> {
        self.send(AgentInput::default().detached()).await
    }

    /// Returns a handle that sends from another task, for example while this one receives.
    pub fn sender(&self) -> Sender<AgentInput> {
        self.connection.sender()
    }

    /// Ends the input.
    pub fn close(&self) {
        self.connection.close();
    }

    /// Waits for the next chunk; `None` after the last.
    pub async fn next(&mut self) -> Option<AgentStreamChunk> {
        let chunk = self.connection.receive().next().await;
        if let Some(chunk) = &chunk {
            self.custom.take_in(chunk);
        }
        chunk
    }

    /// Returns the chunks of one turn, up to and including its `turnEnd`.
    pub fn receive(&mut self) -> TurnChunks<'_, S> {
        TurnChunks {
            connection: self,
            over: false,
        }
    }

    /// Returns the custom state according to the chunks received so far; the default before the first patch.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the custom state that the agent shows is not an `S`.
    pub fn custom(&self) -> Result<S> {
        self.custom.decode()
    }

    /// Ends the input, drops unread chunks and waits for the output. Later calls return the same output.
    ///
    /// The output of an agent that failed holds the error.
    ///
    /// # Errors
    /// The error for which the invocation was refused or cut short.
    pub async fn output(&mut self) -> Result<AgentOutput> {
        self.connection.close();
        while self.next().await.is_some() {}
        self.connection.output().await
    }

    /// Cancels the work.
    pub fn cancel(&self) {
        self.connection.cancel();
    }

    /// Waits until the agent has completed. It may wait for its chunks to be received.
    pub async fn done(&self) {
        self.connection.done().await;
    }

    /// Returns the underlying connection.
    pub fn into_inner(self) -> Connection<AgentInput, AgentOutput, AgentStreamChunk> {
        self.connection
    }
}

everturn_core::opaque_debug!(AgentConnection<S>, connection);

/// A stream of the chunks of one turn, which ends with its `turnEnd`.
#[derive(Debug)]
pub struct TurnChunks<'a, S> {
    connection: &'a mut AgentConnection<S>,
    over: bool,
}

impl<S: CustomState> TurnChunks<'_, S> {
    /// Waits for the next chunk of the turn; `None` after the last.
    pub async fn next(&mut self) -> Option<AgentStreamChunk> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl<S: CustomState> Stream for TurnChunks<'_, S> {
    type Item = AgentStreamChunk;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<AgentStreamChunk>> {
        if self.over {
            return Poll::Ready(None);
        }
        let mut receive = self.connection.connection.receive();
        let next = std::task::ready!(Pin::new(&mut receive).poll_next(cx));
        match &next {
            Some(chunk) => {
                self.connection.custom.take_in(chunk);
                self.over = chunk.turn_end.is_some();
            }
            None => self.over = true,
        }
        Poll::Ready(next)
    }
}
