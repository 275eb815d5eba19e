//! Actions: everything that can be called, typed for the user and erased for transports.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::boundary::{self, Admitted, Entrance};
use crate::span;
use crate::stream_log::JsonText;
use crate::{
    ActionType, Connection, Context, Descriptor, Emitter, Error, HandlerResult, Result, Schema, SpanKind,
    SpanRecorder, Streaming, catch_panic, in_span,
};

/// A value that an action takes, streams or returns: plain data with a JSON form and a schema.
pub trait Payload: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static> Payload for T {}

/// A call as transports make it: all values are JSON.
#[derive(Debug, Default)]
pub struct JsonCall {
    /// The input; `None` if the caller sent none.
    pub input: Option<Value>,
    /// The value that opens a bidirectional action; `None` if the caller sent none.
    pub init: Option<Value>,
    /// The context of the call.
    pub context: Context,
    /// Receives the chunks as JSON text, the form that transports pass on; `None` if the caller wants no
    /// chunks.
    pub emitter: Option<Emitter<JsonText>>,
}

impl JsonCall {
    /// Creates a call with an input, in an empty context and without streaming.
    pub fn new(input: impl Into<Value>) -> Self {
        Self {
            input: Some(input.into()),
            ..Self::default()
        }
    }
}

/// A connection to a bidirectional action as transports use it.
pub type JsonConnection = Connection<Value, Value, Value>;

/// Any action, erased: the form that registries, transports and developer tools work with.
///
/// Behind the trait object is an [`Action`], a [`BidiAction`](crate::BidiAction) or a type of a plugin's own;
/// [`downcast`] gets it back, so that callers within the process skip JSON altogether.
pub trait DynAction: Any + Send + Sync {
    /// Returns the action's key, description and schemas.
    fn descriptor(&self) -> &Descriptor;

    /// Runs the action once and validates its input and output.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the JSON pointer if the input does not match the schema, `INTERNAL` if the
    /// output does not.
    fn run_json(&self, call: JsonCall) -> BoxFuture<'_, Result<Value>>;

    /// Opens a bidirectional invocation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the action is not bidirectional or `init` does not match its schema.
    fn connect_json(&self, init: Option<Value>, context: &Context) -> Result<JsonConnection> {
        let _ = (init, context);
        Err(not_bidirectional(self.descriptor()))
    }
}

pub(crate) fn not_bidirectional(descriptor: &Descriptor) -> Error {
    Error::invalid_argument(format!(
        "'{}' is not a bidirectional action: call it without 'init' and without a connection",
        descriptor.key
    ))
    .with_public()
}

/// Returns the concrete action behind an erased one, or `None` if it is of another type.
///
/// Calls of the concrete action pass values without converting them to JSON. The generate loop therefore
/// never serialises a conversation to call a model.
pub fn downcast<A: DynAction>(action: Arc<dyn DynAction>) -> Option<Arc<A>> {
    let action: Arc<dyn Any + Send + Sync> = action;
    action.downcast().ok()
}

/// Runs the work of an action inside its span; a panic becomes an error.
pub(crate) fn run_in_span<T, Fut: Future<Output = Result<T>>>(
    descriptor: &Descriptor,
    context: Context,
    work: impl FnOnce(Context, SpanRecorder) -> Fut,
) -> impl Future<Output = Result<T>> {
    let kind = SpanKind::Action(&descriptor.action_type);
    in_span(&descriptor.name, kind, context, |context, recorder| {
        catch_panic(&descriptor.key, work(context, recorder))
    })
}

/// Records the span of a call that is refused before it begins.
pub(crate) fn refused(descriptor: &Descriptor, context: Context, error: Error) -> Error {
    let kind = SpanKind::Action(&descriptor.action_type);
    span::refused(&descriptor.name, kind, context, error)
}

/// Defines the methods that actions of both kinds have for their descriptor.
macro_rules! descriptor_methods {
    () => {
        fn describe(mut self, change: impl FnOnce(&mut Descriptor)) -> Self {
            change(Arc::make_mut(&mut self.descriptor));
            self
        }

        /// Sets the description of what the action does.
        pub fn with_description(self, description: impl Into<String>) -> Self {
            self.describe(|descriptor| descriptor.description = Some(description.into()))
        }

        /// Replaces the inferred schema of the input; with `None`, any input that decodes is accepted.
        pub fn with_input_schema(self, schema: impl Into<Option<Schema>>) -> Self {
            self.describe(|descriptor| descriptor.input_schema = schema.into())
        }

        /// Replaces the inferred schema of the output; with `None`, outputs are not validated.
        pub fn with_output_schema(self, schema: impl Into<Option<Schema>>) -> Self {
            self.describe(|descriptor| descriptor.output_schema = schema.into())
        }

        /// Adds metadata to the descriptor.
        pub fn with_metadata(self, entries: Map<String, Value>) -> Self {
            self.describe(|descriptor| descriptor.metadata.extend(entries))
        }

        /// Returns the action's key, description and schemas.
        pub fn descriptor(&self) -> &Descriptor {
            &self.descriptor
        }

        /// Returns the action's name.
        pub fn name(&self) -> &str {
            &self.descriptor.name
        }
    };
}
pub(crate) use descriptor_methods;

type Handler<I, O, S> = dyn Fn(I, Context, Emitter<S>) -> BoxFuture<'static, HandlerResult<O>> + Send + Sync;

/// An action that takes one input and returns one output, and may stream chunks of `S` meanwhile.
///
/// Cloning is cheap. A call from Rust moves values as they are; only calls through [`DynAction`] use JSON and
/// are validated.
///
/// ```
/// use everturn_core::{Action, ActionType, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let double = Action::new(ActionType::CUSTOM, "double", |n: i64, _context| async move { Ok(n * 2) });
///
/// assert_eq!(double.run(21).await?, 42);
/// # Ok(()) }
/// ```
pub struct Action<I, O, S = ()> {
    descriptor: Arc<Descriptor>,
    handler: Arc<Handler<I, O, S>>,
}

impl<I: Payload, O: Payload> Action<I, O> {
    /// Creates an action that does not stream.
    pub fn new<F, Fut>(action_type: ActionType, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        Self::build(action_type, name, move |input, context, _| {
            Box::pin(function(input, context))
        })
    }
}

impl<I: Payload, O: Payload, S: Payload> Action<I, O, S> {
    /// Creates an action that streams chunks.
    pub fn streaming<F, Fut>(action_type: ActionType, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(I, Context, Emitter<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        let action = Self::build(action_type, name, move |input, context, emitter| {
            Box::pin(function(input, context, emitter))
        });
        action.describe(|descriptor| descriptor.stream_schema = Some(Schema::shared::<S>()))
    }

    descriptor_methods!();

    fn build(
        action_type: ActionType,
        name: impl Into<String>,
        handler: impl Fn(I, Context, Emitter<S>) -> BoxFuture<'static, HandlerResult<O>> + Send + Sync + 'static,
    ) -> Self {
        let mut descriptor = Descriptor::new(action_type, name);
        descriptor.input_schema = Some(Schema::shared::<I>());
        descriptor.output_schema = Some(Schema::shared::<O>());
        Self {
            descriptor: Arc::new(descriptor),
            handler: Arc::new(handler),
        }
    }

    /// Runs the action in the current context, without streaming.
    ///
    /// # Errors
    /// The error that the action's function returns; `INTERNAL` if it panics; `CANCELLED` or
    /// `DEADLINE_EXCEEDED` if the context ends first.
    pub async fn run(&self, input: I) -> Result<O> {
        self.call(input, Context::current(), Emitter::silent()).await
    }

    /// Runs the action in the given context and sends its chunks to `emitter`.
    ///
    /// # Errors
    /// As [`Action::run`].
    pub fn call(&self, input: I, context: Context, emitter: Emitter<S>) -> impl Future<Output = Result<O>> {
        // Boxed to keep the futures below small.
        let input = Box::new(input);
        run_in_span(&self.descriptor, context, move |context, recorder| async move {
            recorder.input(&*input);
            let output = self.invoke(input, context, emitter).await?;
            recorder.output(&output);
            Ok(output)
        })
    }

    /// Starts the action in the current context and streams its chunks.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn stream(&self, input: I) -> Streaming<O, S> {
        self.stream_in(input, &Context::current())
    }

    /// Starts the action in the given context and streams its chunks.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn stream_in(&self, input: I, context: &Context) -> Streaming<O, S> {
        let action = self.clone();
        Streaming::start(self.name(), context, move |emitter, context| async move {
            Ok(action.call(input, context, emitter).await?)
        })
    }

    fn invoke(
        &self,
        input: Box<I>,
        context: Context,
        emitter: Emitter<S>,
    ) -> impl Future<Output = Result<O>> {
        context.guarding(|context| (self.handler)(*input, context, emitter))
    }

    async fn invoke_json(&self, call: JsonCall) -> Result<Value> {
        // A silently ignored `init` would start in another state than the caller asked for.
        if call.init.is_some_and(|init| !init.is_null()) {
            let error = not_bidirectional(&self.descriptor);
            return Err(refused(&self.descriptor, call.context, error));
        }
        let emitter = call.emitter.map_or_else(Emitter::silent, |emitter| {
            emitter.map_from(|chunk: S| Ok(JsonText::of(&chunk)?))
        });
        let input = call.input.unwrap_or(Value::Null);
        run_in_span(&self.descriptor, call.context, |context, recorder| async move {
            let input = Admitted::admit(&self.descriptor, Entrance::Input, input).await?;
            // After admission, so that a trace never holds a value that is too deep to be dropped.
            recorder.input(input.value());
            let output = self
                .invoke(Box::new(input.decode().await?), context, emitter)
                .await?;
            let output = boundary::encode(&self.descriptor, output).await?;
            recorder.output(&output);
            Ok(output)
        })
        .await
    }
}

impl<I: Payload, O: Payload, S: Payload> DynAction for Action<I, O, S> {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn run_json(&self, call: JsonCall) -> BoxFuture<'_, Result<Value>> {
        Box::pin(self.invoke_json(call))
    }
}

impl<I, O, S> Clone for Action<I, O, S> {
    fn clone(&self) -> Self {
        Self {
            descriptor: Arc::clone(&self.descriptor),
            handler: Arc::clone(&self.handler),
        }
    }
}

crate::opaque_debug!(Action<I, O, S>, descriptor.key);

impl fmt::Debug for dyn DynAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynAction").field(&self.descriptor().key).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Large([u64; 32]);

    /// Calls take as long as a model call, and a server holds many of them.
    #[test]
    fn the_future_of_a_call_has_no_room_for_its_input() {
        let small = Action::new(ActionType::CUSTOM, "small", |_: u8, _| async { Ok(()) });
        let large = Action::new(ActionType::CUSTOM, "large", |_: Large, _| async { Ok(()) });

        let small = small.call(0, Context::new(), Emitter::silent());
        let large = large.call(Large::default(), Context::new(), Emitter::silent());

        assert_eq!(size_of_val(&small), size_of_val(&large));
    }
}
