//! The shapes of reranking: documents in, the same documents with scores out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::{Document, JsonObject, Part, document::text_and_media};

/// A request to a reranker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RerankerRequest {
    /// What the documents are to be relevant to.
    pub query: Document,
    /// The documents to rank.
    pub documents: Vec<Document>,
    /// Settings for the reranker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// A reranker's answer.
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
    /// The score, and whatever is known about the document.
    pub metadata: RankedDocumentMetadata,
}

/// The metadata of a [`RankedDocument`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedDocumentMetadata {
    /// How relevant the document is.
    pub score: Number,
    /// Whatever else is known about the document.
    #[serde(flatten)]
    pub extra: JsonObject,
}

/// The settings that most rerankers understand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommonRerankerOptions {
    /// How many documents to give back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
}
