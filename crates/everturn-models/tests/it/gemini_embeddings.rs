//! Embeddings of Gemini.

use std::sync::Arc;

use everturn_ai::{Document, EmbedRequest, embed, embed_with};
use everturn_core::Registry;
use everturn_models::gemini::Gemini;
use serde_json::{Value, json};

use crate::server::{Reply, Request, Server};

/// Answers each document with a vector of its index.
fn vectors(request: &Request) -> Reply {
    let requests = request.body["requests"].as_array().unwrap();
    let embeddings: Vec<Value> = requests
        .iter()
        .map(|request| json!({ "values": [request["content"]["parts"][0]["text"].as_str().unwrap().len(), 0.5] }))
        .collect();
    Reply::json(&json!({ "embeddings": embeddings }))
}

fn registry(server: &Server) -> Registry {
    let registry = Registry::new();
    registry
        .install(Arc::new(Gemini::new("key").base_url(server.url())))
        .unwrap();
    registry
}

#[tokio::test]
async fn documents_are_embedded_in_order_and_in_batches() {
    let server = Server::start(vectors).await;
    let documents: Vec<String> = (1..=130).map(|length| "x".repeat(length)).collect();

    let embeddings = embed(&registry(&server), "gemini/gemini-embedding-001", documents)
        .await
        .unwrap();

    let lengths: Vec<f32> = embeddings
        .iter()
        .map(|embedding| embedding.embedding[0])
        .collect();
    assert_eq!(lengths.len(), 130);
    assert!(lengths.is_sorted());
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        requests[0].path,
        "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    );
}

#[tokio::test]
async fn options_go_with_every_document() {
    let server = Server::start(vectors).await;
    let request = EmbedRequest {
        input: vec![Document::from("leeks")],
        options: Some(json!({ "taskType": "RETRIEVAL_QUERY", "outputDimensionality": 2 })),
    };

    embed_with(&registry(&server), "gemini/gemini-embedding-001", request)
        .await
        .unwrap();

    let expected = json!({ "requests": [{
        "taskType": "RETRIEVAL_QUERY", "outputDimensionality": 2,
        "model": "models/gemini-embedding-001", "content": { "parts": [{ "text": "leeks" }] },
    }]});
    assert_eq!(server.last_body(), expected);
}
