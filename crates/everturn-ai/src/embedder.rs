//! Embedders: documents in, vectors out.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, HandlerResult, Registry, Result, Schema};
use serde_json::json;

use crate::primitive::{call, metadata};
use crate::{Document, EmbedRequest, EmbedResponse, EmbedderInfo, Embedding};

/// An embedder as the registry holds it.
pub type EmbedderAction = Action<EmbedRequest, EmbedResponse>;

/// The action that runs an embedder, for plugins that provide one. `options` is the schema of its settings.
pub fn embedder_action<F, Fut>(
    name: impl Into<String>,
    info: &EmbedderInfo,
    options: Option<&Schema>,
    function: F,
) -> EmbedderAction
where
    F: Fn(EmbedRequest, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<EmbedResponse>> + Send + 'static,
{
    let custom = options.map_or_else(
        || json!({}),
        |schema| json!({ "customOptions": schema.as_json() }),
    );
    Action::new(ActionType::EMBEDDER, name, function).with_metadata(metadata([
        ("type", json!("embedder")),
        ("info", json!(info)),
        ("embedder", custom),
    ]))
}

/// Registers an embedder.
///
/// # Errors
/// `ALREADY_EXISTS` if there is an embedder of that name.
pub fn define_embedder<F, Fut>(
    registry: &Registry,
    name: impl Into<String>,
    info: &EmbedderInfo,
    function: F,
) -> Result<EmbedderAction>
where
    F: Fn(EmbedRequest, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<EmbedResponse>> + Send + 'static,
{
    let action = embedder_action(name, info, None, function);
    registry.register(Arc::new(action.clone()))?;
    Ok(action)
}

/// Embeds documents with the embedder of that name.
///
/// # Errors
/// `NOT_FOUND` if there is no such embedder, else what it fails with.
pub async fn embed(
    registry: &Registry,
    embedder: &str,
    documents: impl IntoIterator<Item = impl Into<Document>>,
) -> Result<Vec<Embedding>> {
    let request = EmbedRequest {
        input: documents.into_iter().map(Into::into).collect(),
        options: None,
    };
    embed_with(registry, embedder, request)
        .await
        .map(|response| response.embeddings)
}

/// Calls the embedder of that name with a whole request.
///
/// # Errors
/// As [`embed`].
pub async fn embed_with(registry: &Registry, embedder: &str, request: EmbedRequest) -> Result<EmbedResponse> {
    call(registry, &ActionType::EMBEDDER, embedder, request).await
}
