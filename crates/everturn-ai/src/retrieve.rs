//! The shapes of retrieval and indexing: a query in, documents out; documents in, nothing out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Document;

/// A request to a retriever.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrieverRequest {
    /// What to look for.
    pub query: Document,
    /// Settings for the retriever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// A retriever's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrieverResponse {
    /// What was found.
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
