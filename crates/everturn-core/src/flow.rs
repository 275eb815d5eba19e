//! Flows: a user's own functions as actions, and the steps inside them.

use std::future::Future;
use std::sync::Arc;

use serde::Serialize;

use crate::action::Payload;
use crate::span::{SpanKind, in_span};
use crate::{Action, ActionType, BidiAction, Context, Emitter, HandlerResult, Inputs, Registry, Result};

/// A flow: a function with a name, schemas and a trace.
pub type Flow<I, O> = Action<I, O>;

/// A flow that streams.
pub type StreamingFlow<I, O, S> = Action<I, O, S>;

/// A bidirectional flow: it reads many inputs, streams chunks and ends with one output.
pub type BidiFlow<T, I, O, S> = BidiAction<T, I, O, S>;

impl Registry {
    /// Defines a flow.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a flow of that name.
    pub fn define_flow<I, O, F, Fut>(&self, name: &str, function: F) -> Result<Flow<I, O>>
    where
        I: Payload,
        O: Payload,
        F: Fn(I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        let flow = Action::new(ActionType::FLOW, name, move |input, _context| function(input));
        self.register(Arc::new(flow.clone()))?;
        Ok(flow)
    }

    /// Defines a flow that streams chunks.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a flow of that name.
    pub fn define_streaming_flow<I, O, S, F, Fut>(
        &self,
        name: &str,
        function: F,
    ) -> Result<StreamingFlow<I, O, S>>
    where
        I: Payload,
        O: Payload,
        S: Payload,
        F: Fn(I, Emitter<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        let flow = Action::streaming(ActionType::FLOW, name, move |input, _context, emitter| {
            function(input, emitter)
        });
        self.register(Arc::new(flow.clone()))?;
        Ok(flow)
    }

    /// Defines a bidirectional flow.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a flow of that name.
    pub fn define_bidi_flow<T, I, O, S, F, Fut>(
        &self,
        name: &str,
        function: F,
    ) -> Result<BidiFlow<T, I, O, S>>
    where
        T: Payload + Default,
        I: Payload,
        O: Payload,
        S: Payload,
        F: Fn(T, Inputs<I>, Emitter<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        let flow = BidiAction::new(ActionType::FLOW, name, move |init, inputs, emitter, _context| {
            function(init, inputs, emitter)
        });
        self.register(Arc::new(flow.clone()))?;
        Ok(flow)
    }
}

/// Runs a step: `function` in a span of its own below the current one.
///
/// ```
/// use everturn_core::{Result, run};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let stock = run("count leeks", || async { Ok(3) }).await?;
/// assert_eq!(stock, 3);
/// # Ok(()) }
/// ```
///
/// # Errors
/// The error that `function` returns.
pub async fn run<T, F, Fut>(name: &str, function: F) -> Result<T>
where
    T: Serialize,
    F: FnOnce() -> Fut,
    Fut: Future<Output = HandlerResult<T>>,
{
    in_span(
        name,
        SpanKind::FlowStep,
        Context::current(),
        async |_context, recorder| {
            let output = function().await?;
            recorder.output(&output);
            Ok(output)
        },
    )
    .await
}
