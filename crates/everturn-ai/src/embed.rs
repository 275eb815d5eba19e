//! The shapes of embedding: documents in, vectors out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Document, JsonObject};

/// A request to an embedder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EmbedRequest {
    /// The documents to embed.
    pub input: Vec<Document>,
    /// Settings for the embedder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// An embedder's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EmbedResponse {
    /// The embeddings, in the order of the documents; a document of several parts may give several.
    pub embeddings: Vec<Embedding>,
}

/// A vector that stands for a document, or for a part of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Embedding {
    /// The vector.
    pub embedding: Vec<f32>,
    /// What the vector stands for, when that is not the whole document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// What an embedder is and can do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmbedderInfo {
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The length of the vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<u32>,
    /// What it can embed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supports: Option<EmbedderSupports>,
}

/// What an embedder can embed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmbedderSupports {
    /// The kinds of input: `text`, `image`, `video`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<String>>,
    /// Whether it knows more than one language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multilingual: Option<bool>,
}
