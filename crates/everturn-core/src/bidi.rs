//! Bidirectional actions: opened once, fed many inputs, streaming many chunks, ending in one output.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::action::{JsonCall, JsonConnection, Payload, decode, encode};
use crate::span::{SpanKind, in_span};
use crate::{ActionType, Connection, Context, Descriptor, DynAction, Emitter, Error, Inputs, Result, Schema};

type Handler<T, I, O, S> = dyn Fn(T, Inputs<I>, Emitter<S>, Context) -> BoxFuture<'static, Result<O>> + Send + Sync;

/// An action with an open conversation: `T` opens it, `I` goes in, `S` comes out, `O` ends it.
///
/// Cloning is cheap. See [`Connection`] for what the caller holds.
pub struct BidiAction<T, I, O, S> {
    descriptor: Arc<Descriptor>,
    handler: Arc<Handler<T, I, O, S>>,
    payloads: PhantomData<fn(T, I) -> (O, S)>,
}

impl<T, I, O, S> BidiAction<T, I, O, S>
where
    T: Payload + Default,
    I: Payload,
    O: Payload,
    S: Payload,
{
    /// A bidirectional action. A caller that opens it with nothing gets `T::default()`.
    pub fn new<F, Fut>(action_type: ActionType, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(T, Inputs<I>, Emitter<S>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        let mut descriptor = Descriptor::new(action_type, name);
        descriptor.input_schema = Some(Schema::of::<I>());
        descriptor.output_schema = Some(Schema::of::<O>());
        descriptor.stream_schema = Some(Schema::of::<S>());
        descriptor.init_schema = Some(Schema::of::<T>());
        descriptor.metadata.insert("bidi".into(), Value::Bool(true));
        Self {
            descriptor: Arc::new(descriptor),
            handler: Arc::new(move |init, inputs, emitter, context| {
                Box::pin(function(init, inputs, emitter, context))
            }),
            payloads: PhantomData,
        }
    }

    fn describe(mut self, change: impl FnOnce(&mut Descriptor)) -> Self {
        change(Arc::make_mut(&mut self.descriptor));
        self
    }

    /// Says what the action does.
    pub fn with_description(self, description: impl Into<String>) -> Self {
        self.describe(|descriptor| descriptor.description = Some(description.into()))
    }

    /// Adds metadata to the descriptor.
    pub fn with_metadata(self, entries: Map<String, Value>) -> Self {
        self.describe(|descriptor| descriptor.metadata.extend(entries))
    }

    /// Replaces the inferred schema of what opens the action.
    pub fn with_init_schema(self, schema: impl Into<Option<Schema>>) -> Self {
        self.describe(|descriptor| descriptor.init_schema = schema.into())
    }

    /// Replaces the inferred schema of each input.
    pub fn with_input_schema(self, schema: impl Into<Option<Schema>>) -> Self {
        self.describe(|descriptor| descriptor.input_schema = schema.into())
    }

    /// Replaces the inferred output schema.
    pub fn with_output_schema(self, schema: impl Into<Option<Schema>>) -> Self {
        self.describe(|descriptor| descriptor.output_schema = schema.into())
    }

    /// What the action is called and what it takes.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The action's name.
    pub fn name(&self) -> &str {
        &self.descriptor.name
    }

    /// Opens the action in the current context.
    pub fn connect(&self, init: T) -> Connection<I, O, S> {
        self.connect_in(init, &Context::current())
    }

    /// Opens the action in the given context.
    pub fn connect_in(&self, init: T, context: &Context) -> Connection<I, O, S> {
        let action = self.clone();
        Connection::open(self.descriptor.key.clone(), context, move |inputs, emitter, context| async move {
            let kind = SpanKind::Action(&action.descriptor.action_type);
            in_span(&action.descriptor.name, kind, context, async |context, recorder| {
                recorder.init(&init);
                let output = (action.handler)(init, inputs, emitter, context).await?;
                recorder.output(&output);
                Ok(output)
            })
            .await
        })
    }

    fn decode_init(&self, init: Option<Value>) -> Result<Option<(T, Value)>> {
        match init {
            None | Some(Value::Null) => Ok(None),
            Some(raw) => {
                let init = decode(&self.descriptor, self.descriptor.init_schema.as_ref(), raw.clone())?;
                Ok(Some((init, raw)))
            }
        }
    }

    /// The JSON form of the whole conversation: one invalid input fails it, and that is its error.
    async fn converse_json(
        self,
        init: Option<(T, Value)>,
        inputs: Inputs<Value>,
        emitter: Emitter<Value>,
        context: Context,
    ) -> Result<Value> {
        let kind = SpanKind::Action(&self.descriptor.action_type);
        in_span(&self.descriptor.name, kind, context, async |context, recorder| {
            let init = init.map_or_else(T::default, |(init, raw)| {
                recorder.init(&raw);
                init
            });
            let invalid = Arc::new(OnceLock::new());
            let inputs = self.decode_inputs(inputs, Arc::clone(&invalid), context.clone());
            let emitter = emitter.map_from(|chunk: S| Ok(serde_json::to_value(chunk)?));
            let result = context.guard((self.handler)(init, inputs, emitter, context.clone())).await;
            if let Some(error) = invalid.get() {
                return Err(Error::clone(error));
            }
            let output = encode(&self.descriptor, &result?)?;
            recorder.output(&output);
            Ok(output)
        })
        .await
    }

    /// Decodes inputs as they come. The first invalid one is kept in `invalid`, ends the stream and cancels the work.
    fn decode_inputs(&self, inputs: Inputs<Value>, invalid: Arc<OnceLock<Error>>, context: Context) -> Inputs<I> {
        let descriptor = Arc::clone(&self.descriptor);
        let decoded = inputs.scan((), move |(), value| {
            let result = decode(&descriptor, descriptor.input_schema.as_ref(), value);
            let next = match result {
                Ok(input) => Some(input),
                Err(error) => {
                    // Only the first can be set, and only the first is reached: the stream ends here.
                    let _ = invalid.set(error);
                    context.cancel();
                    None
                }
            };
            std::future::ready(next)
        });
        Inputs::from_stream(decoded.fuse())
    }

    async fn run_once_json(&self, call: JsonCall) -> Result<Value> {
        let init = self.decode_init(call.init)?;
        let Some(input) = call.input.filter(|input| !input.is_null()) else {
            return Err(Error::invalid_argument(format!(
                "a single call of '{}' needs an input; to open it without one, use a streaming session",
                self.descriptor.key
            ))
            .with_public());
        };
        let context = call.context.child();
        let inputs = Inputs::from_stream(futures::stream::iter([input]));
        let emitter = call.emitter.unwrap_or_else(Emitter::silent);
        let work = self.clone().converse_json(init, inputs, emitter, context);
        crate::panic::catch_panic(&self.descriptor.key, work).await
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
        Box::pin(self.run_once_json(call))
    }

    fn connect_json(&self, init: Option<Value>, context: &Context) -> Result<JsonConnection> {
        let init = self.decode_init(init)?;
        let action = self.clone();
        Ok(Connection::open(self.descriptor.key.clone(), context, move |inputs, emitter, context| {
            action.converse_json(init, inputs, emitter, context)
        }))
    }
}

impl<T, I, O, S> Clone for BidiAction<T, I, O, S> {
    fn clone(&self) -> Self {
        Self { descriptor: Arc::clone(&self.descriptor), handler: Arc::clone(&self.handler), payloads: PhantomData }
    }
}

impl<T, I, O, S> fmt::Debug for BidiAction<T, I, O, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BidiAction").field(&self.descriptor.key).finish()
    }
}
