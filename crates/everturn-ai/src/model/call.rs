//! Calling a model by name, without the generate loop around it.

use everturn_core::{Context, Emitter, Registry, Result};

use super::ModelHandle;
use crate::{ModelRequest, ModelResponse, ModelResponseChunk};

/// Calls the model of that name, or key, once: no tools are run and no format is applied.
///
/// # Errors
/// `NOT_FOUND` with [`reason::MODEL_NOT_FOUND`](crate::reason::MODEL_NOT_FOUND), else what the model fails with.
pub async fn call_model(
    registry: &Registry,
    name: &str,
    request: ModelRequest,
    emitter: Emitter<ModelResponseChunk>,
    context: Context,
) -> Result<ModelResponse> {
    ModelHandle::resolve(registry, name)
        .await?
        .call(request, emitter, context)
        .await
}
