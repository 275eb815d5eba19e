//! One generate call: everything that is resolved once and does not change between its rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use everturn_core::{Context, Emitter, Registry, Result};
use futures::future::BoxFuture;

use super::output::OutputPlan;
use super::partial::Progress;
use super::tool_errors::{Mistakes, ToolErrors};
use super::tool_table::ToolTable;
use crate::model::ModelHandle;
use crate::{
    Answers, GenerateRound, Middleware, ModelCall, ModelRequest, ModelResponse, ModelResponseChunk,
    NextModel, Resource, Role, Window,
};

pub(super) struct Call {
    pub(super) registry: Registry,
    pub(super) model_name: String,
    pub(super) model: ModelHandle,
    pub(super) chain: Arc<[Arc<dyn Middleware>]>,
    pub(super) tools: ToolTable,
    pub(super) resources: Vec<Resource>,
    pub(super) output: Arc<OutputPlan>,
    pub(super) max_rounds: u32,
    pub(super) returns_tool_requests: bool,
    pub(super) allows_blocked: bool,
    pub(super) tool_errors: ToolErrors,
    pub(super) mistakes: Mistakes,
    pub(super) progress: Progress,
    /// The context window; the whole conversation if not given.
    pub(super) window: Option<Window>,
    pub(super) step_name: String,
    /// The index of the first message that the current round streams.
    pub(super) message_index: Arc<AtomicU32>,
}

impl Call {
    /// Calls the model through the model hooks.
    pub(super) fn ask(
        self: &Arc<Self>,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> BoxFuture<'static, Result<ModelResponse>> {
        let call = Arc::clone(self);
        let core = move |asked: ModelCall| -> BoxFuture<'static, _> {
            let call = Arc::clone(&call);
            // Boxed to keep the futures below small.
            let asked = Box::new(asked);
            Box::pin(async move {
                let model = call.model_for(&asked.model).await?;
                // Inside all hooks, so that the request of the next round still has every message.
                if let Some(window) = &call.window {
                    return window.ask(&model, asked).await;
                }
                let request = Box::new(asked.request);
                model.call(request, asked.emitter, asked.context).await
            })
        };
        let asked = ModelCall {
            request,
            model: self.model_name.clone(),
            emitter,
            context,
            registry: self.registry.clone(),
        };
        NextModel::around_model(&self.chain, core).run(asked)
    }

    /// Returns the model with that name, because a hook may have chosen another than the call's own.
    async fn model_for(&self, name: &str) -> Result<ModelHandle> {
        if name == self.model_name {
            return Ok(self.model.clone());
        }
        ModelHandle::resolve(&self.registry, name).await
    }

    /// Returns the first round.
    pub(super) fn opening(
        &self,
        request: ModelRequest,
        answers: Option<Answers>,
        emitter: &Emitter<ModelResponseChunk>,
        context: Context,
    ) -> GenerateRound {
        GenerateRound {
            request,
            answers,
            index: 0,
            message_index: 0,
            emitter: self.with_defaults(emitter),
            context,
            registry: self.registry.clone(),
        }
    }

    /// Sets the role and index of chunks from hooks that have none to those of the model's next message.
    fn with_defaults(&self, emitter: &Emitter<ModelResponseChunk>) -> Emitter<ModelResponseChunk> {
        // Without hooks every chunk already has both.
        if self.chain.is_empty() {
            return emitter.clone();
        }
        let message_index = Arc::clone(&self.message_index);
        emitter.map_from(move |mut chunk: ModelResponseChunk| {
            chunk.role.get_or_insert(Role::Model);
            chunk
                .index
                .get_or_insert_with(|| message_index.load(Ordering::Relaxed));
            Ok(chunk)
        })
    }
}
