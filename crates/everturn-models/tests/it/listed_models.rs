//! The models that providers list.

use everturn_core::Plugin;
use everturn_models::{Anthropic, Gemini};
use serde_json::json;

use crate::server::{Reply, Server};

#[tokio::test]
async fn anthropic_lists_all_pages_once_and_refines_what_is_known() {
    let server = Server::replies([
        Reply::json(&json!({ "data": [{ "id": "claude-sonnet-5", "display_name": "Claude Sonnet 5", "type": "model" }],
                             "has_more": true, "last_id": "claude-sonnet-5" })),
        Reply::json(&json!({ "data": [{
            "id": "claude-opus-4-1", "display_name": "Claude Opus 4.1", "lifecycle": "deprecated",
            "capabilities": { "image_input": { "supported": false }, "structured_outputs": { "supported": true } },
        }], "has_more": false })),
    ])
    .await;
    let plugin = Anthropic::new("key").base_url(server.url());

    let listed = plugin.list().await.unwrap();
    let again = plugin.list().await.unwrap();

    let names: Vec<&str> = listed.iter().map(|descriptor| descriptor.name.as_str()).collect();
    assert_eq!(names, ["anthropic/claude-sonnet-5", "anthropic/claude-opus-4-1"]);
    assert_eq!(listed[0].metadata["model"]["label"], "Claude Sonnet 5");
    let early = &listed[1].metadata["model"];
    assert_eq!(early["stage"], "deprecated");
    assert_eq!(early["supports"]["media"], false);
    assert_eq!(early["supports"]["constrained"], "all");
    assert_eq!(again.len(), 2);
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].path, "/v1/models?limit=1000&after_id=claude-sonnet-5");
    assert!(requests[0].headers.contains_key("anthropic-version"));
}

#[tokio::test]
async fn gemini_lists_models_and_embedders() {
    let server = Server::replies([
        Reply::json(&json!({ "nextPageToken": "p2", "models": [
            { "name": "models/gemini-3-pro", "displayName": "Gemini 3 Pro",
              "supportedGenerationMethods": ["generateContent", "countTokens"] },
            { "name": "models/imagen-4", "supportedGenerationMethods": ["predict"] },
            { "name": "models/gemini-3-flash-image", "supportedGenerationMethods": ["generateContent"] },
        ]})),
        Reply::json(&json!({ "models": [
            { "name": "models/gemini-embedding-001", "supportedGenerationMethods": ["embedContent"] },
        ]})),
    ])
    .await;
    let plugin = Gemini::new("key").base_url(server.url());

    let listed = plugin.list().await.unwrap();

    let keys: Vec<&str> = listed.iter().map(|descriptor| descriptor.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "/model/gemini/gemini-3-pro",
            "/embedder/gemini/gemini-embedding-001"
        ]
    );
    assert_eq!(listed[0].metadata["model"]["label"], "Gemini 3 Pro");
    assert_eq!(
        server.requests()[1].path,
        "/v1beta/models?pageSize=1000&pageToken=p2"
    );
}

#[tokio::test]
async fn a_list_that_cannot_be_had_is_empty() {
    let refused = || Reply::json(&json!({ "error": { "message": "no" } })).status(403);
    let server = Server::replies([refused(), refused()]).await;

    assert!(
        Anthropic::new("key")
            .base_url(server.url())
            .list()
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        Gemini::new("key")
            .base_url(server.url())
            .list()
            .await
            .unwrap()
            .is_empty()
    );
}
