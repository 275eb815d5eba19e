//! How long a provider is waited for.

use std::sync::Arc;
use std::time::Duration;

use everturn_ai::call_model;
use everturn_core::{Context, Emitter, Error, Registry, Status};
use everturn_models::OpenAi;
use serde_json::json;
use tokio::sync::mpsc;

use crate::asking::question;
use crate::chat::{delta, end, stream};
use crate::server::{Reply, Server};

fn answer() -> String {
    stream(&[delta(json!({ "content": "Leeks." })), end("stop")])
}

/// Returns the error of a call to a server. `ready` reports when only the server delays the call.
async fn failure(
    server: &Server,
    ready: impl AsyncFnOnce(&mut mpsc::Receiver<everturn_ai::ModelResponseChunk>),
) -> Error {
    let registry = Registry::new();
    registry
        .install(Arc::new(OpenAi::compatible("p", server.url())))
        .unwrap();
    let (sender, mut receiver) = mpsc::channel(10);
    let call = tokio::spawn(async move {
        call_model(
            &registry,
            "p/m",
            question("Leeks?"),
            Emitter::channel(sender),
            Context::new(),
        )
        .await
    });
    ready(&mut receiver).await;
    // From here on, time passes as soon as nothing else happens.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let error = call.await.unwrap().unwrap_err();
    assert!(begun.elapsed() > Duration::from_mins(1));
    error
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_waited_for_five_minutes() {
    let server = Server::replies([Reply::events(answer()).silent_at(0)]).await;

    let error = failure(&server, async |_| server.request_arrived().await).await;

    assert_eq!(error.status(), Status::DeadlineExceeded);
    assert!(error.message().contains("300s"), "{error}");
    assert_eq!(server.requests().len(), 1, "another attempt would be as long");
}

#[tokio::test]
async fn an_answer_that_stops_is_waited_for_two_minutes() {
    let bytes = answer().find("\n\n").unwrap() + 2;
    let server = Server::replies([Reply::events(answer()).silent_at(bytes)]).await;

    let error = failure(&server, async |chunks| drop(chunks.recv().await)).await;

    assert_eq!(error.status(), Status::DeadlineExceeded);
    assert!(error.message().contains("120s"), "{error}");
}
