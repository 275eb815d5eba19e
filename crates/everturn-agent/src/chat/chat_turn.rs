//! One turn of a chat, while it is in progress.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use everturn_core::{Connection, Result};
use futures::Stream;
use futures::future::BoxFuture;
use serde_json::Value;

use super::chunk::TurnText;
use super::{AgentChunk, AgentReply, Chat};
use crate::{AgentInput, AgentOutput, AgentStreamChunk, CustomState};

/// A turn in progress: a stream of chunks, then [`ChatTurn::output`].
///
/// A turn that is refused or fails ends the stream with its error. Dropping the turn cancels it; the chat
/// then stays where it was.
pub struct ChatTurn<'a, S, T = Value, O = Value> {
    chat: HeldChat<'a, S, T, O>,
    input: AgentInput,
    progress: Progress,
    text: TurnText,
    outcome: Option<Result<AgentReply<S, O>>>,
}

/// The chat of a turn: lent, or the turn's own.
pub(super) enum HeldChat<'a, S, T, O> {
    Borrowed(&'a mut Chat<S, T, O>),
    Owned(Box<Chat<S, T, O>>),
}

impl<S, T, O> HeldChat<'_, S, T, O> {
    fn get(&mut self) -> &mut Chat<S, T, O> {
        match self {
            Self::Borrowed(chat) => chat,
            Self::Owned(chat) => chat,
        }
    }
}

enum Progress {
    Streaming(Box<Connection<AgentInput, AgentOutput, AgentStreamChunk>>),
    Settling(BoxFuture<'static, Result<AgentOutput>>),
    Over,
}

impl<'a, S: CustomState, T, O> ChatTurn<'a, S, T, O> {
    pub(super) fn new(
        chat: HeldChat<'a, S, T, O>,
        input: AgentInput,
        connection: Connection<AgentInput, AgentOutput, AgentStreamChunk>,
    ) -> Self {
        Self {
            chat,
            input,
            progress: Progress::Streaming(Box::new(connection)),
            text: TurnText::default(),
            outcome: None,
        }
    }

    /// Waits for the next chunk; `None` after the last.
    pub async fn next(&mut self) -> Option<Result<AgentChunk<S, T>>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Drops unread chunks and waits for the reply.
    ///
    /// # Errors
    /// The error of a turn that was refused, cut short or failed; [`AgentReply::of`] finds the reply of a
    /// failed one.
    pub async fn output(mut self) -> Result<AgentReply<S, O>> {
        loop {
            if let Some(outcome) = self.outcome.take() {
                return outcome;
            }
            self.next().await;
        }
    }

    /// Cancels the turn; its output is then an error.
    pub fn cancel(&self) {
        if let Progress::Streaming(connection) = &self.progress {
            connection.cancel();
        }
    }

    fn chunk(&mut self, raw: AgentStreamChunk) -> AgentChunk<S, T> {
        let custom = &mut self.chat.get().custom;
        custom.take_in(&raw);
        AgentChunk {
            accumulated: self.text.add(&raw),
            custom: custom.json().cloned(),
            raw,
            types: PhantomData,
        }
    }
}

impl<S: CustomState, T, O> Stream for ChatTurn<'_, S, T, O> {
    type Item = Result<AgentChunk<S, T>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.progress {
                Progress::Streaming(connection) => {
                    let next = ready!(Pin::new(&mut connection.receive()).poll_next(cx));
                    if let Some(raw) = next {
                        return Poll::Ready(Some(Ok(this.chunk(raw))));
                    }
                    // Waiting for the output consumes the connection.
                    let Progress::Streaming(connection) =
                        std::mem::replace(&mut this.progress, Progress::Over)
                    else {
                        return Poll::Ready(None);
                    };
                    this.progress = Progress::Settling(Box::pin(connection.into_output()));
                }
                Progress::Settling(output) => {
                    let output = ready!(output.as_mut().poll(cx));
                    this.progress = Progress::Over;
                    let outcome = this.chat.get().conclude(&this.input, output);
                    let error = outcome.as_ref().err().cloned();
                    this.outcome = Some(outcome);
                    // A failed turn ends the stream with its error, which stays in `outcome` for a caller of
                    // `output` too.
                    return Poll::Ready(error.map(Err));
                }
                Progress::Over => return Poll::Ready(None),
            }
        }
    }
}

everturn_core::opaque_debug!(ChatTurn<'a, S, T, O>, input, text);
