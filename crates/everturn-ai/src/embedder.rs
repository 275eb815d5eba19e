//! Embedders: documents in, vectors out.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, HandlerResult, Registry, Result, Schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::primitive::{call, metadata};
use crate::{Document, JsonObject};

/// An embedder in the registry.
pub type EmbedderAction = Action<EmbedRequest, EmbedResponse>;

/// Creates the action that runs an embedder, for plugins that provide one. `options` is the schema of its
/// settings.
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
/// `NOT_FOUND` if there is no such embedder, or else its error.
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

/// Calls the embedder of that name with a complete request.
///
/// # Errors
/// As [`embed`].
pub async fn embed_with(registry: &Registry, embedder: &str, request: EmbedRequest) -> Result<EmbedResponse> {
    call(registry, &ActionType::EMBEDDER, embedder, request).await
}

/// A request to an embedder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EmbedRequest {
    /// The documents to embed.
    pub input: Vec<Document>,
    /// Settings for the embedder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// The response of an embedder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EmbedResponse {
    /// The embeddings, in the order of the documents; a document of several parts may give several.
    pub embeddings: Vec<Embedding>,
}

/// A vector for a document, or for a part of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Embedding {
    /// The vector.
    pub embedding: Vec<f32>,
    /// The part of the document that the vector covers, if it does not cover all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// The capabilities of an embedder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmbedderInfo {
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The length of the vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<u32>,
    /// The supported input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supports: Option<EmbedderSupports>,
}

/// The input that an embedder supports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmbedderSupports {
    /// The kinds of input: `text`, `image`, `video`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<String>>,
    /// Whether it supports more than one language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multilingual: Option<bool>,
}
