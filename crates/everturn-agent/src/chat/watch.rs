//! Watching a background run.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use everturn_core::Result;
use futures::{Stream, StreamExt};
use serde_json::Value;

use super::AgentChunk;
use super::turn_text::TurnText;
use crate::chat::connection::CustomView;
use crate::{AgentStreamChunk, CustomState, RunChunks};

/// The chunks of a background run: a stream that ends with the run. Dropping it leaves the run alone.
pub struct RunWatch<S, T = Value> {
    chunks: RunChunks,
    custom: CustomView,
    /// The text of the turn so far.
    text: TurnText,
    types: PhantomData<fn() -> (S, T)>,
}

impl<S, T> RunWatch<S, T> {
    pub(super) fn new(chunks: RunChunks) -> Self {
        Self {
            chunks,
            custom: CustomView::default(),
            text: TurnText::default(),
            types: PhantomData,
        }
    }

    /// Waits for the next chunk; `None` after the last.
    pub async fn next(&mut self) -> Option<Result<AgentChunk<S, T>>>
    where
        S: CustomState,
    {
        StreamExt::next(self).await
    }

    fn chunk(&mut self, raw: AgentStreamChunk) -> AgentChunk<S, T> {
        self.custom.take_in(&raw);
        if raw.taken_over {
            self.text.begin();
        }
        let accumulated = self.text.add(&raw);
        if raw.turn_end.is_some() {
            self.text.begin();
        }
        AgentChunk {
            accumulated,
            custom: self.custom.json().cloned(),
            raw,
            types: PhantomData,
        }
    }
}

impl<S: CustomState, T> Stream for RunWatch<S, T> {
    type Item = Result<AgentChunk<S, T>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = this.chunks.poll_next_unpin(cx);
        next.map(|next| next.map(|chunk| chunk.map(|raw| this.chunk(raw))))
    }
}

everturn_core::opaque_debug!(RunWatch<S, T>, text);
