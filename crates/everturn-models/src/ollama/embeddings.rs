//! Texts into vectors.

use std::sync::Arc;

use everturn_ai::{
    Document, EmbedRequest, EmbedResponse, EmbedderAction, EmbedderInfo, Embedding, embedder_action,
};
use everturn_core::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::service::{Call, Service};

#[derive(Deserialize)]
struct Answer {
    embeddings: Vec<Vec<f32>>,
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
    let texts: Vec<_> = request.input.iter().map(Document::text).collect();
    let mut body = json!({ "model": id, "input": texts });
    if let (Value::Object(body), Some(Value::Object(options))) = (&mut body, &request.options) {
        body.extend(options.clone());
    }
    let answer: Answer = service.json(&Call::post("/api/embed", body)).await?;
    if answer.embeddings.len() != texts.len() {
        let given = answer.embeddings.len();
        return Err(Error::internal(format!(
            "ollama gave {given} vectors for {} texts",
            texts.len()
        )));
    }
    let embedding = |embedding| Embedding {
        embedding,
        metadata: None,
    };
    Ok(EmbedResponse {
        embeddings: answer.embeddings.into_iter().map(embedding).collect(),
    })
}
