//! How long a provider is waited for, what is said about it, and what is not.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_ai::call_model;
use everturn_core::{Context, Emitter, Error, Registry, Status};
use everturn_models::OpenAi;
use serde_json::json;
use tokio::sync::mpsc;
use tracing_subscriber::fmt::MakeWriter;

use crate::asking::{ask, question, question_with};
use crate::chat::{delta, end, stream};
use crate::server::{Reply, Server};

fn answer() -> String {
    stream(&[delta(json!({ "content": "Leeks." })), end("stop")])
}

/// How a call fails that is made of a server, once `ready` says that it waits for nothing but the server.
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

/// What is logged, with the spans it happens in.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn retries_are_events_of_the_model_s_span_and_keys_are_nowhere() {
    // What is traced is known to tracing before anybody listens: otherwise it may be overlooked, if another test is the
    // first to come there at this very moment.
    let warm = Server::replies([Reply::json(&json!({})).status(408).header("retry-after-ms", "1")]).await;
    ask(OpenAi::compatible("p", warm.url()), "p/m", question("Leeks?"))
        .await
        .result
        .unwrap_err();
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let refusal = json!({ "error": { "message": "slow down, sk-secret and sk-called" } });
    let server = Server::replies([
        Reply::json(&refusal)
            .status(429)
            .header("retry-after-ms", "1")
            .header("x-request-id", "r1"),
        Reply::events(answer()),
    ])
    .await;
    let plugin = OpenAi::compatible("p", server.url())
        .key("sk-secret")
        .header("x-gateway", "sk-header");

    ask(plugin, "p/m", question_with(json!({ "apiKey": "sk-called" })))
        .await
        .result
        .unwrap();

    assert_eq!(server.requests()[1].headers["authorization"], "Bearer sk-called");
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let retry = logged
        .lines()
        .find(|line| line.contains("asking the provider again"))
        .unwrap_or_default();
    assert!(retry.contains("otel.name=\"p/m\""), "{logged}");
    for word in ["attempt=1", "RESOURCE_EXHAUSTED", "slow down", "request r1"] {
        assert!(retry.contains(word), "{word}: {retry}");
    }
    for key in ["sk-secret", "sk-called", "sk-header"] {
        assert!(!logged.contains(key), "{key}: {logged}");
    }
}
