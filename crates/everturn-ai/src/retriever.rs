//! Retrievers and indexers: documents are stored, and found again by a query.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Document;
use crate::primitive::{call, metadata};

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
