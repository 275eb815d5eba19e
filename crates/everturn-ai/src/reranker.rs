//! Rerankers: documents in, the same documents by relevance out.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value, json};

use crate::document::text_and_media;
use crate::primitive::{call, metadata};
use crate::{Document, JsonObject, Part};

/// A reranker in the registry.
pub type RerankerAction = Action<RerankerRequest, RerankerResponse>;

/// Registers a reranker.
///
/// # Errors
/// `ALREADY_EXISTS` if there is a reranker of that name.
pub fn define_reranker<F, Fut>(
    registry: &Registry,
    name: impl Into<String>,
    function: F,
) -> Result<RerankerAction>
where
    F: Fn(RerankerRequest, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<RerankerResponse>> + Send + 'static,
{
    let name = name.into();
    let metadata = metadata([
        ("type", json!("reranker")),
        ("reranker", json!({ "label": name })),
    ]);
    let action = Action::new(ActionType::RERANKER, name, function).with_metadata(metadata);
    registry.register(Arc::new(action.clone()))?;
    Ok(action)
}

/// Orders documents by relevance with the reranker of that name; `options` are the reranker's own.
///
/// # Errors
/// `NOT_FOUND` if there is no such reranker, or else its error.
pub async fn rerank(
    registry: &Registry,
    reranker: &str,
    query: impl Into<Document>,
    documents: impl IntoIterator<Item = impl Into<Document>>,
    options: Option<Value>,
) -> Result<Vec<RankedDocument>> {
    let documents = documents.into_iter().map(Into::into).collect();
    let request = RerankerRequest {
        query: query.into(),
        documents,
        options,
    };
    let response: RerankerResponse = call(registry, &ActionType::RERANKER, reranker, request).await?;
    Ok(response.documents)
}

/// A request to a reranker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RerankerRequest {
    /// The query that the documents are compared with.
    pub query: Document,
    /// The documents to rank.
    pub documents: Vec<Document>,
    /// Settings for the reranker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// The response of a reranker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RerankerResponse {
    /// The documents, best first.
    pub documents: Vec<RankedDocument>,
}

/// A document with its score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RankedDocumentData")]
pub struct RankedDocument {
    /// The parts; only text and media.
    #[serde(deserialize_with = "text_and_media")]
    pub content: Vec<Part>,
    /// The score, and other metadata of the document.
    pub metadata: RankedDocumentMetadata,
}

/// The metadata of a [`RankedDocument`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedDocumentMetadata {
    /// How relevant the document is.
    pub score: Number,
    /// Other metadata of the document.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// The settings that most rerankers understand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommonRerankerOptions {
    /// The number of documents to return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
}
