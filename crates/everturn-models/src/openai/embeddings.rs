//! Embeddings of texts.

use everturn_ai::Document;
use everturn_core::Result;
use serde::Deserialize;
use serde_json::json;

use crate::embedder::EmbedCall;

/// The most texts of a request.
const MAX_INPUTS: usize = 2048;

#[derive(Deserialize)]
struct Answer {
    data: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    #[serde(default)]
    index: usize,
    embedding: Vec<f32>,
}

pub(super) async fn embed(call: EmbedCall) -> Result<Vec<Vec<f32>>> {
    let mut vectors = Vec::with_capacity(call.documents.len());
    for documents in call.documents.chunks(MAX_INPUTS) {
        let texts: Vec<_> = documents.iter().map(Document::text).collect();
        // Many servers support no other encoding.
        let body = json!({ "model": call.model, "input": texts, "encoding_format": "float" });
        let mut answer: Answer = call.post("/embeddings", call.with_options(body)).await?;
        answer.data.sort_by_key(|vector| vector.index);
        vectors.extend(answer.data.into_iter().map(|vector| vector.embedding));
    }
    Ok(vectors)
}
