//! Embeddings of texts and media.

use everturn_ai::{Document, Part};
use everturn_core::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::contents::media_part;
use super::method_path;
use crate::embedder::EmbedCall;

/// The most documents of a request.
const MAX_DOCUMENTS: usize = 100;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    embeddings: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    #[serde(default)]
    values: Vec<f32>,
}

pub(super) async fn embed(call: EmbedCall) -> Result<Vec<Vec<f32>>> {
    let path = method_path(&call.model, "batchEmbedContents");
    let mut vectors = Vec::with_capacity(call.documents.len());
    for documents in call.documents.chunks(MAX_DOCUMENTS) {
        let requests = documents.iter().map(|document| request(&call, document));
        let requests = requests.collect::<Result<Vec<_>>>()?;
        let answer: Answer = call.post(&path, json!({ "requests": requests })).await?;
        vectors.extend(answer.embeddings.into_iter().map(|vector| vector.values));
    }
    Ok(vectors)
}

fn request(call: &EmbedCall, document: &Document) -> Result<Value> {
    let name = if call.model.contains('/') {
        call.model.clone()
    } else {
        format!("models/{}", call.model)
    };
    let parts = document.content.iter().map(part).collect::<Result<Vec<_>>>()?;
    Ok(call.with_options(json!({ "model": name, "content": { "parts": parts } })))
}

fn part(part: &Part) -> Result<Value> {
    match part.as_media() {
        Some(media) => media_part(media),
        None => Ok(json!({ "text": part.as_text().unwrap_or_default() })),
    }
}
