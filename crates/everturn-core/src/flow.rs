//! Flows: a user's own functions as actions, and the steps inside them.

use std::future::Future;
use std::sync::Arc;

use serde::Serialize;

use crate::{
    Action, ActionType, BidiAction, Context, Dependencies, Emitter, Function, HandlerResult, Inputs, Payload,
    Registry, Requirement, Result, SpanKind, in_span,
};

/// A flow: a function with a name, schemas and a trace.
pub type Flow<I, O> = Action<I, O>;

/// A flow that streams.
pub type StreamingFlow<I, O, S> = Action<I, O, S>;

/// A bidirectional flow: it reads many inputs, streams chunks and ends with one output.
pub type BidiFlow<T, I, O, S> = BidiAction<T, I, O, S>;

impl Registry {
    /// Defines a flow: an async function of its input, and of arguments from the context of the call such as
    /// [`Dep`](crate::Dep) and [`Principal`](crate::Principal).
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a flow of that name, `FAILED_PRECONDITION` if it takes a
    /// [`Dep`](crate::Dep) that was not [provided](Registry::provide).
    pub fn define_flow<I, O, A, F>(&self, name: &str, function: F) -> Result<Flow<I, O>>
    where
        I: Payload,
        O: Payload,
        F: Function<(I,), O, A>,
    {
        let dependencies = self.checked_dependencies(name, &F::requirements())?;
        let flow = Action::new(ActionType::FLOW, name, move |input, context: Context| {
            let context = context.with_dependencies(&dependencies);
            let running = function.call((input,), &context);
            context.scope(running)
        });
        self.register(Arc::new(flow.clone()))?;
        Ok(flow)
    }

    /// Defines a flow that streams chunks: an async function of its input, of an emitter, and of arguments
    /// from the context of the call.
    ///
    /// # Errors
    /// As [`Registry::define_flow`].
    pub fn define_streaming_flow<I, O, S, A, F>(
        &self,
        name: &str,
        function: F,
    ) -> Result<StreamingFlow<I, O, S>>
    where
        I: Payload,
        O: Payload,
        S: Payload,
        F: Function<(I, Emitter<S>), O, A>,
    {
        let dependencies = self.checked_dependencies(name, &F::requirements())?;
        let flow = Action::streaming(ActionType::FLOW, name, move |input, context: Context, emitter| {
            let context = context.with_dependencies(&dependencies);
            let running = function.call((input, emitter), &context);
            context.scope(running)
        });
        self.register(Arc::new(flow.clone()))?;
        Ok(flow)
    }

    /// Defines a bidirectional flow: an async function of its init, of its inputs, of an emitter, and of
    /// arguments from the context of the call.
    ///
    /// # Errors
    /// As [`Registry::define_flow`].
    pub fn define_bidi_flow<T, I, O, S, A, F>(&self, name: &str, function: F) -> Result<BidiFlow<T, I, O, S>>
    where
        T: Payload + Default,
        I: Payload,
        O: Payload,
        S: Payload,
        F: Function<(T, Inputs<I>, Emitter<S>), O, A>,
    {
        let dependencies = self.checked_dependencies(name, &F::requirements())?;
        let flow = BidiAction::new(
            ActionType::FLOW,
            name,
            move |init, inputs, emitter, context: Context| {
                let context = context.with_dependencies(&dependencies);
                let running = function.call((init, inputs, emitter), &context);
                context.scope(running)
            },
        );
        self.register(Arc::new(flow.clone()))?;
        Ok(flow)
    }

    fn checked_dependencies(&self, flow: &str, requirements: &[Requirement]) -> Result<Dependencies> {
        let dependencies = self.dependencies();
        dependencies.check(format_args!("flow '{flow}'"), requirements)?;
        Ok(dependencies.clone())
    }
}

/// Runs a step: `function` in its own span below the current one.
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
