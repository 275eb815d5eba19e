//! Texts into vectors.

use std::sync::Arc;

use everturn_ai::{
    EmbedRequest, EmbedResponse, EmbedderAction, EmbedderInfo, Embedding, JsonObject, embedder_action,
};
use everturn_core::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::service::{Call, Service};

/// How many texts one request may have.
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

pub(super) fn action(name: String, service: Service, id: &str) -> EmbedderAction {
    let info = EmbedderInfo {
        label: Some(name.clone()),
        ..EmbedderInfo::default()
    };
    let shared = Arc::new((service, id.to_owned()));
    embedder_action(name, &info, None, move |request, _context| {
        let shared = Arc::clone(&shared);
        async move {
            let (service, id) = &*shared;
            Ok(embed(service, id, &request).await?)
        }
    })
}

async fn embed(service: &Service, id: &str, request: &EmbedRequest) -> Result<EmbedResponse> {
    let mut embeddings = Vec::with_capacity(request.input.len());
    for documents in request.input.chunks(MAX_INPUTS) {
        let texts: Vec<_> = documents.iter().map(everturn_ai::Document::text).collect();
        // Many servers know no other encoding.
        let mut body = json!({ "model": id, "input": texts, "encoding_format": "float" });
        if let (Value::Object(body), Some(Value::Object(options))) = (&mut body, &request.options) {
            body.extend(options.clone());
        }
        let answer: Answer = service.json(&Call::post("/embeddings", body)).await?;
        embeddings.extend(in_order(answer.data, documents.len(), service.provider())?);
    }
    Ok(EmbedResponse { embeddings })
}

fn in_order(mut vectors: Vec<Vector>, wanted: usize, provider: &str) -> Result<Vec<Embedding>> {
    if vectors.len() != wanted {
        let message = format!("{provider} gave {} vectors for {wanted} texts", vectors.len());
        return Err(Error::internal(message));
    }
    vectors.sort_by_key(|vector| vector.index);
    let embedding = |vector: Vector| Embedding {
        embedding: vector.embedding,
        metadata: None::<JsonObject>,
    };
    Ok(vectors.into_iter().map(embedding).collect())
}
