//! Rerankers: documents in, the same documents by relevance out.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, HandlerResult, Registry, Result};
use serde_json::{Value, json};

use crate::primitive::{call, metadata};
use crate::{Document, RankedDocument, RerankerRequest, RerankerResponse};

/// A reranker as the registry holds it.
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
/// `NOT_FOUND` if there is no such reranker, else what it fails with.
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
