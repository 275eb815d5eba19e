//! Retrievers, indexers and rerankers: documents are stored, found again by a query, and ordered by
//! relevance.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value, json};

use crate::document::text_and_media;
use crate::primitive::{call, metadata};
use crate::{Document, JsonObject, Part};

/// A retriever in the registry.
pub type RetrieverAction = Action<RetrieverRequest, RetrieverResponse>;

/// An indexer in the registry.
pub type IndexerAction = Action<IndexerRequest, ()>;

/// Registers a retriever.
///
/// # Errors
/// `ALREADY_EXISTS` if there is a retriever of that name.
pub fn define_retriever<F, Fut>(
    registry: &Registry,
    name: impl Into<String>,
    function: F,
) -> Result<RetrieverAction>
where
    F: Fn(RetrieverRequest, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<RetrieverResponse>> + Send + 'static,
{
    let name = name.into();
    let metadata = metadata([
        ("type", json!("retriever")),
        ("retriever", json!({ "label": name })),
    ]);
    let action = Action::new(ActionType::RETRIEVER, name, function).with_metadata(metadata);
    registry.register(Arc::new(action.clone()))?;
    Ok(action)
}

/// Finds documents with the retriever of that name; `options` such as `{"k": 3}` are the retriever's own.
///
/// # Errors
/// `NOT_FOUND` if there is no such retriever, or else its error.
pub async fn retrieve(
    registry: &Registry,
    retriever: &str,
    query: impl Into<Document>,
    options: Option<Value>,
) -> Result<Vec<Document>> {
    let request = RetrieverRequest {
        query: query.into(),
        options,
    };
    let response: RetrieverResponse = call(registry, &ActionType::RETRIEVER, retriever, request).await?;
    Ok(response.documents)
}

/// Registers an indexer.
///
/// # Errors
/// `ALREADY_EXISTS` if there is an indexer of that name.
pub fn define_indexer<F, Fut>(
    registry: &Registry,
    name: impl Into<String>,
    function: F,
) -> Result<IndexerAction>
where
    F: Fn(IndexerRequest, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<()>> + Send + 'static,
{
    let name = name.into();
    let metadata = metadata([("type", json!("indexer")), ("indexer", json!({ "label": name }))]);
    let action = Action::new(ActionType::INDEXER, name, function).with_metadata(metadata);
    registry.register(Arc::new(action.clone()))?;
    Ok(action)
}

/// Stores documents with the indexer of that name.
///
/// # Errors
/// `NOT_FOUND` if there is no such indexer, or else its error.
pub async fn index(
    registry: &Registry,
    indexer: &str,
    documents: impl IntoIterator<Item = impl Into<Document>>,
    options: Option<Value>,
) -> Result<()> {
    let request = IndexerRequest {
        documents: documents.into_iter().map(Into::into).collect(),
        options,
    };
    call(registry, &ActionType::INDEXER, indexer, request).await
}

/// A request to a retriever.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrieverRequest {
    /// The query.
    pub query: Document,
    /// Settings for the retriever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// The response of a retriever.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrieverResponse {
    /// The documents that were found.
    pub documents: Vec<Document>,
}

/// The settings that most retrievers understand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommonRetrieverOptions {
    /// How many documents to retrieve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
}

/// A request to an indexer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IndexerRequest {
    /// The documents to index.
    pub documents: Vec<Document>,
    /// Settings for the indexer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

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
