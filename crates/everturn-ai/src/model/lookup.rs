//! Looking up models by name, and calling them without JSON where possible; the default model.

use std::sync::Arc;

use everturn_core::stream_log::JsonText;
use everturn_core::{ActionType, Context, DynAction, Emitter, Error, JsonCall, Registry, Result, downcast};

use super::ModelAction;
use super::background::StartAction;
use super::provider::MAX_INPUT_TOKENS;
use crate::usage_meter::MeteredCall;
use crate::{ModelReference, ModelRequest, ModelResponse, ModelResponseChunk, reason};

/// A model found in the registry.
#[derive(Clone)]
pub(crate) enum ModelHandle {
    Typed(Arc<ModelAction>),
    /// A model that a plugin implements directly; it is called through JSON.
    Erased(Arc<dyn DynAction>),
    Background(Arc<StartAction>),
}

impl ModelHandle {
    /// Looks up the model with that name or key, or else the background model.
    pub(crate) async fn resolve(registry: &Registry, name: &str) -> Result<Self> {
        // A key names its kind; a bare name may be either.
        let keys = if name.starts_with('/') {
            vec![name.to_owned()]
        } else {
            vec![
                ActionType::MODEL.key(name),
                ActionType::BACKGROUND_MODEL.key(name),
            ]
        };
        for key in &keys {
            if let Some(action) = registry.lookup(key).await? {
                return Ok(Self::of(action));
            }
        }
        Err(Error::not_found(format!("no model '{name}' is registered")).with_reason(reason::MODEL_NOT_FOUND))
    }

    fn of(action: Arc<dyn DynAction>) -> Self {
        // A typed call moves the conversation without serialising it.
        if let Some(model) = downcast::<ModelAction>(Arc::clone(&action)) {
            return Self::Typed(model);
        }
        match downcast::<StartAction>(Arc::clone(&action)) {
            Some(background) => Self::Background(background),
            None => Self::Erased(action),
        }
    }

    /// Returns the most tokens that a request may have, if the model declares it.
    pub(crate) fn max_input_tokens(&self) -> Option<u64> {
        let descriptor = match self {
            Self::Typed(model) => model.descriptor(),
            Self::Erased(model) => model.descriptor(),
            Self::Background(model) => model.descriptor(),
        };
        descriptor.metadata.get(MAX_INPUT_TOKENS)?.as_u64()
    }

    fn name(&self) -> &str {
        match self {
            Self::Typed(model) => model.name(),
            Self::Erased(model) => &model.descriptor().name,
            Self::Background(model) => model.name(),
        }
    }

    /// Calls the model with messages that every provider accepts, if the limits of the context allow it.
    pub(crate) async fn call(
        &self,
        mut request: Box<ModelRequest>,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> Result<ModelResponse> {
        // Last, after every hook and the window, and for the model alone: the conversation keeps its own
        // messages.
        if let Some(repaired) = request.messages.repaired() {
            tracing::debug!("the conversation is repaired for the model");
            request.messages = repaired;
        }
        let metered = MeteredCall::of_model(&context, self.name()).await?;
        let answered = self.call_unmetered(request, emitter, context).await;
        let usage = answered.as_ref().ok().and_then(|answer| answer.usage.as_ref());
        // Boxed to keep the future of a running call small.
        Box::pin(metered.model_answered(self.name(), usage)).await;
        answered
    }

    async fn call_unmetered(
        &self,
        request: Box<ModelRequest>,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> Result<ModelResponse> {
        match self {
            Self::Typed(model) => {
                // In its own block, so that the box is freed before the wait.
                let request = *{ request };
                model.call(request, context, emitter).await
            }
            // Boxed, because few models are called this way.
            Self::Erased(model) => Box::pin(call_json(model, &request, &emitter, context)).await,
            Self::Background(model) => {
                if emitter.is_streaming() {
                    tracing::warn!(model = model.name(), "a background model does not stream");
                }
                let operation = Box::pin(model.call(*request, context, Emitter::silent())).await?;
                Ok(ModelResponse {
                    operation: Some(Box::new(operation)),
                    ..ModelResponse::default()
                })
            }
        }
    }
}

async fn call_json(
    model: &Arc<dyn DynAction>,
    request: &ModelRequest,
    emitter: &Emitter<ModelResponseChunk>,
    context: Context,
) -> Result<ModelResponse> {
    let chunks = emitter.map_from(|chunk: JsonText| Ok(chunk.read()?));
    let call = JsonCall {
        input: Some(serde_json::to_value(request)?),
        context,
        // Without a listener the model need not stream.
        emitter: chunks.is_streaming().then_some(chunks),
        ..JsonCall::default()
    };
    let response = model.run_json(call).await?;
    if model.descriptor().action_type == ActionType::BACKGROUND_MODEL {
        let operation = serde_json::from_value(response)?;
        return Ok(ModelResponse {
            operation: Some(Box::new(operation)),
            ..ModelResponse::default()
        });
    }
    Ok(serde_json::from_value(response)?)
}

/// Calls the model with that name or key once, without running tools or applying a format.
///
/// # Errors
/// `NOT_FOUND` with [`reason::MODEL_NOT_FOUND`](crate::reason::MODEL_NOT_FOUND), or else the model's error.
pub async fn call_model(
    registry: &Registry,
    name: &str,
    request: ModelRequest,
    emitter: Emitter<ModelResponseChunk>,
    context: Context,
) -> Result<ModelResponse> {
    ModelHandle::resolve(registry, name)
        .await?
        .call(Box::new(request), emitter, context)
        .await
}

const KEY: &str = "genkit/defaultModel";

/// Sets the model and configuration for requests that name no model.
pub fn set_default_model(registry: &Registry, model: impl Into<ModelReference>) {
    registry.set_value(KEY, model.into());
}

/// Returns the model for requests that name none, if one is set.
pub fn default_model(registry: &Registry) -> Option<ModelReference> {
    registry
        .value::<ModelReference>(KEY)
        .map(|model| (*model).clone())
}
