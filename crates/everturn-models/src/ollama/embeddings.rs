//! Embeddings of texts.

use everturn_ai::Document;
use everturn_core::Result;
use serde::Deserialize;
use serde_json::json;

use crate::embedder::EmbedCall;

#[derive(Deserialize)]
struct Answer {
    embeddings: Vec<Vec<f32>>,
}

pub(super) async fn embed(call: EmbedCall) -> Result<Vec<Vec<f32>>> {
    let texts: Vec<_> = call.documents.iter().map(Document::text).collect();
    let body = call.with_options(json!({ "model": call.model, "input": texts }));
    let answer: Answer = call.post("/api/embed", body).await?;
    Ok(answer.embeddings)
}
