//! A streamed generation.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, ready};

use everturn_core::{Connection, Context, Error, Result};
use futures::{Stream, StreamExt};
use serde_json::Value;

use super::chunk::Accumulation;
use super::output::OutputPlan;
use super::plan::{Finished, FirstSpan, Plan};
use super::{Chunk, Generated};
use crate::ModelResponseChunk;

type Received = Result<ModelResponseChunk, Error>;

/// A streamed generation: its chunks, then its response. A failure ends the stream with the error.
///
/// Dropping it cancels the generation.
pub struct GenerateStream<T = Value> {
    connection: Connection<(), Finished, Received>,
    plan: Arc<OnceLock<Arc<OutputPlan>>>,
    accumulation: Accumulation,
    output: PhantomData<fn() -> T>,
}

impl<T> GenerateStream<T> {
    pub(super) fn start(mut plan: Box<Plan>) -> Self {
        let context = plan.context.clone().unwrap_or_else(Context::current);
        let announced = Arc::new(OnceLock::new());
        let announce = Arc::clone(&announced);
        // The connection has its own context, so that the end of the caller's is still reported as an error.
        let connection = Connection::open(
            "generate",
            &Context::new(),
            move |_inputs, emitter, _own| async move {
                let context = context.child();
                let _cancel = context.cancellation().clone().drop_guard();
                plan.context = Some(context.clone());
                plan.emitter = emitter.map_from(|chunk| Ok(Ok(chunk)));
                let running = plan.run(FirstSpan::Own, move |output| {
                    // Only this task announces, and only once.
                    let _ = announce.set(Arc::clone(output));
                });
                let result = context.guard(running).await;
                if let Err(error) = &result {
                    // A disconnected consumer needs no error.
                    let _ = emitter.send(Err(error.clone())).await;
                }
                Ok(result?)
            },
        );
        Self {
            connection,
            plan: announced,
            accumulation: Accumulation::default(),
            output: PhantomData,
        }
    }

    /// Adds the [accumulated text](Chunk::accumulated_text) to the chunks.
    pub fn accumulating(mut self) -> Self {
        self.accumulation.keep_text();
        self
    }

    /// Returns the next chunk, or `None` after the last one; an error is the last item.
    pub async fn next(&mut self) -> Option<Result<Chunk<T>>> {
        StreamExt::next(self).await
    }

    /// Drops unread chunks and waits for the response. Further calls return the same response.
    ///
    /// # Errors
    /// As [`Generate::run`](crate::Generate::run); `CANCELLED` if the stream was cancelled.
    pub async fn response(&mut self) -> Result<Generated<T>> {
        Ok(Generated::new(self.connection.output().await?))
    }

    /// Cancels the generation.
    pub fn cancel(&self) {
        self.connection.cancel();
    }
}

impl<T> Stream for GenerateStream<T> {
    type Item = Result<Chunk<T>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.get_mut();
        let received = ready!(Pin::new(&mut stream.connection.receive()).poll_next(cx));
        let plan = stream.plan.get().map(Arc::as_ref);
        Poll::Ready(received.map(|received| received.map(|chunk| stream.accumulation.dress(chunk, plan))))
    }
}

everturn_core::opaque_debug!(GenerateStream<T>, connection);
