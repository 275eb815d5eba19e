//! Bidirectional actions: opened once, they read many inputs, stream many chunks and end with one output.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::action::{JsonCall, JsonConnection, Payload, descriptor_methods, refused, run_in_span};
use crate::boundary::{self, Admitted, Entrance};
use crate::offload::{is_heavy, offload};
use crate::panic::catch_panic_now;
use crate::schema::{Untrusted, check_depth};
use crate::stream_log::JsonText;
use crate::{
    ActionType, Connection, Context, Descriptor, DynAction, Emitter, Error, HandlerResult, Inputs, Result,
    Schema,
};

type Handler<T, I, O, S> =
    dyn Fn(T, Inputs<I>, Emitter<S>, Context) -> BoxFuture<'static, HandlerResult<O>> + Send + Sync;

/// A bidirectional action: a `T` opens it, it reads inputs of `I`, streams chunks of `S` and ends with one
/// output `O`.
///
/// Cloning is cheap. The caller's side is a [`Connection`].
pub struct BidiAction<T, I, O, S> {
    descriptor: Arc<Descriptor>,
    handler: Arc<Handler<T, I, O, S>>,
}

impl<T, I, O, S> BidiAction<T, I, O, S>
where
    T: Payload + Default,
    I: Payload,
    O: Payload,
    S: Payload,
{
    /// Creates a bidirectional action. If the caller sends no opening value, `function` gets `T::default()`.
    ///
    /// Undeclared fields are ignored unless a type rejects them with `#[serde(deny_unknown_fields)]`.
    pub fn new<F, Fut>(action_type: ActionType, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(T, Inputs<I>, Emitter<S>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        let mut descriptor = Descriptor::new(action_type, name);
        descriptor.input_schema = Some(Schema::shared::<I>());
        descriptor.output_schema = Some(Schema::shared::<O>());
        descriptor.stream_schema = Some(Schema::shared::<S>());
        descriptor.init_schema = Some(Schema::shared::<T>());
        descriptor.metadata.insert("bidi".into(), Value::Bool(true));
        Self {
            descriptor: Arc::new(descriptor),
            handler: Arc::new(move |init, inputs, emitter, context| {
                Box::pin(function(init, inputs, emitter, context))
            }),
        }
    }

    descriptor_methods!();

    /// Replaces the inferred schema of the value that opens the action.
    pub fn with_init_schema(self, schema: impl Into<Option<Schema>>) -> Self {
        self.describe(|descriptor| descriptor.init_schema = schema.into())
    }

    /// Opens the action in the current context.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn connect(&self, init: T) -> Connection<I, O, S> {
        self.connect_in(init, &Context::current())
    }

    /// Opens the action in the given context.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn connect_in(&self, init: T, context: &Context) -> Connection<I, O, S> {
        let action = self.clone();
        Connection::open(
            self.descriptor.key.clone(),
            context,
            move |inputs, emitter, context| async move { Ok(action.call(init, inputs, emitter, context).await?) },
        )
    }

    /// Runs the action in the caller's task: reads these inputs and sends the chunks to `emitter`. Dropping
    /// the future ends the invocation.
    ///
    /// # Errors
    /// The error that the action's function returns; `INTERNAL` if it panics; `CANCELLED` or
    /// `DEADLINE_EXCEEDED` if the context ends first.
    pub async fn call(&self, init: T, inputs: Inputs<I>, emitter: Emitter<S>, context: Context) -> Result<O> {
        // Boxed to keep the futures below small.
        let init = Box::new(init);
        run_in_span(&self.descriptor, context, |context, recorder| async move {
            recorder.init(&*init);
            let output = self.invoke(init, inputs, emitter, context).await?;
            recorder.output(&output);
            Ok(output)
        })
        .await
    }

    fn invoke(
        &self,
        init: Box<T>,
        inputs: Inputs<I>,
        emitter: Emitter<S>,
        context: Context,
    ) -> impl Future<Output = Result<O>> {
        context.guarding(|context| (self.handler)(*init, inputs, emitter, context))
    }

    /// Runs the action over JSON inputs and chunks. The first invalid input fails the invocation with its
    /// error.
    async fn converse_json(
        &self,
        init: Option<Box<Init<T>>>,
        inputs: Inputs<Value>,
        emitter: Emitter<S>,
        context: Context,
    ) -> Result<Value> {
        run_in_span(&self.descriptor, context, |context, recorder| async move {
            let init = init.map_or_else(T::default, |init| {
                recorder.init(&init.raw);
                init.decoded
            });
            let refusal = Refusal::new(&context);
            let inputs = self.decode_inputs(inputs, refusal.clone());
            // Releases the decoder, which holds its inputs open until the action has ended.
            let _over = refusal.over.clone().drop_guard();
            let work = self.invoke(Box::new(init), inputs, emitter, refusal.context.clone());
            let result = refusal.context.clone().scope(work).await;
            // The invalid input is the cause, even if the action returned its own error when it was
            // cancelled.
            if let Some(error) = refusal.error.get() {
                return Err(Error::clone(error));
            }
            let output = boundary::encode(&self.descriptor, result?).await?;
            recorder.output(&output);
            Ok(output)
        })
        .await
    }

    /// Decodes inputs as they arrive; the first invalid one ends the invocation.
    fn decode_inputs(&self, inputs: Inputs<Value>, refusal: Refusal) -> Inputs<I> {
        let descriptor = Arc::clone(&self.descriptor);
        let decoded = inputs.scan((), move |(), value| {
            let (descriptor, refusal) = (Arc::clone(&descriptor), refusal.clone());
            async move {
                let input = async {
                    Admitted::admit(&descriptor, Entrance::Input, value)
                        .await?
                        .decode()
                        .await
                };
                match input.await {
                    Ok(input) => Some(input),
                    Err(error) => refusal.refuse(error).await,
                }
            }
        });
        // Fused, because the stream is polled again after its end.
        Inputs::from_stream(decoded.fuse())
    }

    fn decode_init(&self, init: Option<Value>) -> Result<Option<Box<Init<T>>>> {
        let Some(raw) = init.filter(|init| !init.is_null()) else {
            return Ok(None);
        };
        catch_panic_now(&self.descriptor.key, || {
            let admitted = Admitted::admit_now(&self.descriptor, Entrance::Init, raw)?;
            let raw = admitted.value().clone();
            Ok(Some(Box::new(Init {
                decoded: admitted.decode_now()?,
                raw,
            })))
        })
    }

    /// Decodes a heavy value on a thread that may block.
    async fn decode_heavy_init(&self, raw: Untrusted) -> Result<Option<Box<Init<T>>>> {
        let action = self.clone();
        offload(move || action.decode_init(Some(raw.into_value()))).await
    }

    fn refused(&self, context: &Context, error: Error) -> Error {
        refused(&self.descriptor, context.clone(), error)
    }

    async fn run_once_json(&self, call: Box<JsonCall>) -> Result<Value> {
        // In its own block, so that the box is freed before the wait.
        let JsonCall {
            input,
            init,
            context,
            emitter,
        } = *{ call };
        let init = match init {
            Some(raw) if is_heavy(&raw) => Box::pin(self.decode_heavy_init(Untrusted::new(raw))).await,
            init => self.decode_init(init),
        };
        let init = init.map_err(|error| self.refused(&context, error))?;
        let input = input.unwrap_or(Value::Null);
        // A call with `init` alone looks like an attempt to open a session.
        if init.is_some() && input.is_null() {
            let error = Error::invalid_argument(format!(
                "a single call of '{}' needs an input; to open it without one, use a streaming session",
                self.descriptor.key
            ));
            return Err(self.refused(&context, error.with_public()));
        }
        let inputs = Inputs::from_stream(futures::stream::iter([input]));
        let emitter = emitter.map_or_else(Emitter::silent, |emitter| {
            emitter.map_from(|chunk: S| Ok(JsonText::of(&chunk)?))
        });
        self.converse_json(init, inputs, emitter, context).await
    }
}

/// The value that opens an invocation, decoded and as JSON. Boxed to keep the futures around it small.
struct Init<T> {
    decoded: T,
    raw: Value,
}

/// The value that opens a connection.
enum Opening<T> {
    Decoded(Option<Box<Init<T>>>),
    /// A value that is decoded off the runtime's threads.
    Heavy(Untrusted),
}

/// Ends an invocation because of an invalid input.
#[derive(Clone)]
struct Refusal {
    error: Arc<OnceLock<Error>>,
    /// The action's own context; cancelling it does not cancel the caller's.
    context: Context,
    /// Cancelled when the invocation has ended.
    over: CancellationToken,
}

impl Refusal {
    fn new(context: &Context) -> Self {
        Self {
            error: Arc::default(),
            context: context.child(),
            over: CancellationToken::new(),
        }
    }

    /// Keeps the error, cancels the action and waits until it has ended. If the inputs ended earlier, the
    /// action could not distinguish the refusal from a caller that closed them.
    async fn refuse<I>(self, error: Error) -> Option<I> {
        // The cell is still empty: nothing is decoded after the first invalid input.
        let _ = self.error.set(error);
        self.context.cancel();
        self.over.cancelled().await;
        None
    }
}

impl<T, I, O, S> DynAction for BidiAction<T, I, O, S>
where
    T: Payload + Default,
    I: Payload,
    O: Payload,
    S: Payload,
{
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn run_json(&self, call: JsonCall) -> BoxFuture<'_, Result<Value>> {
        // Boxed twice, because the future would otherwise store the call twice.
        Box::pin(self.run_once_json(Box::new(call)))
    }

    fn connect_json(&self, init: Option<Value>, context: &Context) -> Result<JsonConnection> {
        let init = match init {
            Some(raw) if is_heavy(&raw) && check_depth(&raw).is_ok() => Opening::Heavy(Untrusted::new(raw)),
            init => Opening::Decoded(
                self.decode_init(init)
                    .map_err(|error| self.refused(context, error))?,
            ),
        };
        let action = self.clone();
        Ok(Connection::open(
            self.descriptor.key.clone(),
            context,
            move |inputs, emitter, context| async move {
                let init = match init {
                    Opening::Decoded(init) => init,
                    Opening::Heavy(raw) => action
                        .decode_heavy_init(raw)
                        .await
                        .map_err(|error| action.refused(&context, error))?,
                };
                let emitter = emitter.map_from(|chunk: S| Ok(serde_json::to_value(chunk)?));
                Ok(action.converse_json(init, inputs, emitter, context).await?)
            },
        ))
    }
}

impl<T, I, O, S> Clone for BidiAction<T, I, O, S> {
    fn clone(&self) -> Self {
        Self {
            descriptor: Arc::clone(&self.descriptor),
            handler: Arc::clone(&self.handler),
        }
    }
}

crate::opaque_debug!(BidiAction<T, I, O, S>, descriptor.key);
