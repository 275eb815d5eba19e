//! The hooks of a middleware: the trait, the arguments of each hook, the rest of its chain,
//! and middleware made from closures.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Context, Emitter, HandlerResult, Registry, Result};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    Answers, Message, ModelRequest, ModelResponse, ModelResponseChunk, MultipartToolResponse, Part, Tool,
    ToolRequest, metadata,
};

/// Code around the rounds, model calls and tool calls of a generation.
///
/// Each hook gets the call and the rest of the chain. It may change the call, run the rest once, several
/// times or not at all, and change its result. A hook that is not implemented passes through.
///
/// ```
/// use everturn_ai::{Middleware, ModelCall, ModelResponse, NextModel, async_trait};
/// use everturn_core::HandlerResult;
///
/// #[derive(Clone)]
/// struct Patience;
///
/// #[async_trait]
/// impl Middleware for Patience {
///     async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
///         match next.run(call.clone()).await {
///             Ok(response) => Ok(response),
///             Err(_) => Ok(next.run(call).await?),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Middleware: Send + Sync + 'static {
    /// Wraps every round, including the rounds inside it. A generation that runs tools twice has three
    /// rounds: the last one is the answer. Resolving an interrupt is its own round.
    ///
    /// Changes to the messages stay for later rounds.
    async fn generate(&self, round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        Ok(next.run(round).await?)
    }

    /// Wraps every model call.
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        Ok(next.run(call).await?)
    }

    /// Wraps every tool call; calls of one message run concurrently.
    ///
    /// To pause the generation return [`interrupt`](crate::interrupt) as an error.
    async fn tool(&self, call: ToolCall, next: NextTool) -> HandlerResult<MultipartToolResponse> {
        Ok(next.run(call).await?)
    }

    /// Returns tools that the model gets in addition to those of the request.
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }
}

/// A round before it starts: one model call and the tool calls that it requests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GenerateRound {
    /// The request for the model; changes to it stay for later rounds.
    pub request: ModelRequest,
    /// The answers to interrupted tool calls, if this round answers an interrupt.
    pub answers: Option<Answers>,
    /// The number of rounds of this call that ran tools before this one.
    pub index: u32,
    /// The index of the next message to be streamed.
    pub message_index: u32,
    /// Receives the chunks. A chunk without a role and an index becomes the model's at `message_index`.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The context of the call.
    pub context: Context,
    /// The registry of the generation.
    pub registry: Registry,
}

impl GenerateRound {
    /// Adds a message to the conversation and streams it as its own message.
    ///
    /// # Errors
    /// The error of the stream's receiver.
    pub async fn inject(&mut self, message: Message) -> Result<()> {
        let chunk = ModelResponseChunk {
            role: Some(message.role()),
            index: Some(self.message_index),
            ..ModelResponseChunk::new(message.content())
        };
        self.emitter.send(chunk).await?;
        self.message_index += 1;
        self.request.messages.push(message);
        Ok(())
    }
}

/// A model call before it is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelCall {
    /// The request for the model.
    pub request: ModelRequest,
    /// The model's name; another name calls another model.
    pub model: String,
    /// Receives the model's chunks.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The context of the call.
    pub context: Context,
    /// The registry of the generation.
    pub registry: Registry,
}

/// A tool call before it is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolCall {
    /// The tool request with its metadata.
    pub part: Part,
    /// The tool to run.
    pub tool: Tool,
    /// Receives the tool's progress.
    pub emitter: Emitter<ModelResponseChunk>,
    /// The context of the call.
    pub context: Context,
    /// The registry of the generation.
    pub registry: Registry,
}

impl ToolCall {
    /// Returns the tool request, or `None` if a hook has replaced the part with another kind.
    pub fn request(&self) -> Option<&ToolRequest> {
        self.part.as_tool_request()
    }

    /// Returns the answer with which an interrupted call was restarted; `None` if this is not a restart.
    pub fn answer(&self) -> Option<&Value> {
        self.part.metadata_entry(metadata::RESUMED)
    }
}

/// The rest of the chain after a hook: the hooks inside it and, at the centre, the call itself. Cloning is
/// cheap.
pub struct Next<C, O> {
    chain: Arc<[Arc<dyn Middleware>]>,
    position: usize,
    hook: Hook<C, O>,
    core: Arc<Core<C, O>>,
}

type Hook<C, O> = fn(Arc<dyn Middleware>, C, Next<C, O>) -> BoxFuture<'static, Result<O>>;
type Core<C, O> = dyn Fn(C) -> BoxFuture<'static, Result<O>> + Send + Sync;

/// The rest of the chain around a round.
pub type NextRound = Next<GenerateRound, ModelResponse>;
/// The rest of the chain around a model call.
pub type NextModel = Next<ModelCall, ModelResponse>;
/// The rest of the chain around a tool call.
pub type NextTool = Next<ToolCall, MultipartToolResponse>;

impl<C, O> Next<C, O> {
    /// Runs the rest of the chain. It can be called any number of times, also at the same time.
    ///
    /// # Errors
    /// The error of the rest of the chain.
    pub fn run(&self, call: C) -> BoxFuture<'static, Result<O>> {
        match self.chain.get(self.position) {
            Some(layer) => {
                let inner = Self {
                    position: self.position + 1,
                    ..self.clone()
                };
                (self.hook)(Arc::clone(layer), call, inner)
            }
            None => (self.core)(call),
        }
    }
}

/// Defines the constructor of the chain around one kind of call.
macro_rules! around {
    ($next:ident, $constructor:ident, $hook:ident, $call:ty, $output:ty) => {
        impl $next {
            pub(crate) fn $constructor(
                chain: &Arc<[Arc<dyn Middleware>]>,
                core: impl Fn($call) -> BoxFuture<'static, Result<$output>> + Send + Sync + 'static,
            ) -> Self {
                Self {
                    chain: Arc::clone(chain),
                    position: 0,
                    hook: |layer, call, next| Box::pin(async move { Ok(layer.$hook(call, next).await?) }),
                    core: Arc::new(core),
                }
            }
        }
    };
}

around!(NextRound, around_round, generate, GenerateRound, ModelResponse);
around!(NextModel, around_model, model, ModelCall, ModelResponse);
around!(NextTool, around_tool, tool, ToolCall, MultipartToolResponse);

impl<C, O> Clone for Next<C, O> {
    fn clone(&self) -> Self {
        Self {
            chain: Arc::clone(&self.chain),
            position: self.position,
            hook: self.hook,
            core: Arc::clone(&self.core),
        }
    }
}

everturn_core::opaque_debug!(Next<C, O>, position);

type Function<C, N, O> = dyn Fn(C, N) -> BoxFuture<'static, HandlerResult<O>> + Send + Sync;

macro_rules! closure_hook {
    ($name:ident, $constructor:ident, $method:ident, $call:ty, $next:ty, $output:ty, $doc:literal, $example:literal) => {
        #[doc = concat!("A closure around ", $doc, ".")]
        #[derive(Clone)]
        pub struct $name(Arc<Function<$call, $next, $output>>);

        #[doc = concat!("Makes a middleware of a closure around ", $doc, ".")]
        #[doc = $example]
        pub fn $constructor<F, Fut>(function: F) -> $name
        where
            F: Fn($call, $next) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = HandlerResult<$output>> + Send + 'static,
        {
            $name(Arc::new(move |call, next| Box::pin(function(call, next))))
        }

        #[async_trait]
        impl Middleware for $name {
            async fn $method(&self, call: $call, next: $next) -> HandlerResult<$output> {
                (self.0)(call, next).await
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(stringify!($name))
            }
        }
    };
}

closure_hook!(
    ModelHook,
    model_hook,
    model,
    ModelCall,
    NextModel,
    ModelResponse,
    "every model call",
    "\n```\nuse everturn_ai::model_hook;\n\nlet cold = model_hook(|mut call, next| async move {\n    \
     call.request.config = Some(serde_json::json!({ \"temperature\": 0 }));\n    Ok(next.run(call).await?)\n});\n```"
);
closure_hook!(
    GenerateHook,
    generate_hook,
    generate,
    GenerateRound,
    NextRound,
    ModelResponse,
    "every round",
    ""
);
closure_hook!(
    ToolHook,
    tool_hook,
    tool,
    ToolCall,
    NextTool,
    MultipartToolResponse,
    "every tool call",
    ""
);
