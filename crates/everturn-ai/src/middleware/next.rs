//! The rest of a chain of hooks.

use std::fmt;
use std::sync::Arc;

use everturn_core::Result;
use futures::future::BoxFuture;

use super::{GenerateRound, Middleware, ModelCall, ToolCall};
use crate::{ModelResponse, MultipartToolResponse};

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

impl NextRound {
    pub(crate) fn around_round(
        chain: &Arc<[Arc<dyn Middleware>]>,
        core: impl Fn(GenerateRound) -> BoxFuture<'static, Result<ModelResponse>> + Send + Sync + 'static,
    ) -> Self {
        let hook: Hook<_, _> =
            |layer, round, next| Box::pin(async move { Ok(layer.generate(round, next).await?) });
        Self {
            chain: Arc::clone(chain),
            position: 0,
            hook,
            core: Arc::new(core),
        }
    }
}

impl NextModel {
    pub(crate) fn around_model(
        chain: &Arc<[Arc<dyn Middleware>]>,
        core: impl Fn(ModelCall) -> BoxFuture<'static, Result<ModelResponse>> + Send + Sync + 'static,
    ) -> Self {
        let hook: Hook<_, _> =
            |layer, call, next| Box::pin(async move { Ok(layer.model(call, next).await?) });
        Self {
            chain: Arc::clone(chain),
            position: 0,
            hook,
            core: Arc::new(core),
        }
    }
}

impl NextTool {
    pub(crate) fn around_tool(
        chain: &Arc<[Arc<dyn Middleware>]>,
        core: impl Fn(ToolCall) -> BoxFuture<'static, Result<MultipartToolResponse>> + Send + Sync + 'static,
    ) -> Self {
        let hook: Hook<_, _> = |layer, call, next| Box::pin(async move { Ok(layer.tool(call, next).await?) });
        Self {
            chain: Arc::clone(chain),
            position: 0,
            hook,
            core: Arc::new(core),
        }
    }
}

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

impl<C, O> fmt::Debug for Next<C, O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.chain.len().saturating_sub(self.position);
        formatter
            .debug_struct("Next")
            .field("layers", &layers)
            .finish_non_exhaustive()
    }
}
