//! The model server: real HTTP with scripted answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use everturn::prelude::Value;
use everturn::server::axum::body::Bytes;
use everturn::server::axum::http::StatusCode;
use everturn::server::axum::routing::post;
use everturn::server::axum::{self, Router};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A model server that returns its replies in order. Dropping it stops it.
pub(crate) struct ModelServer {
    pub(crate) url: String,
    script: Arc<Script>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Script {
    replies: Mutex<VecDeque<Value>>,
    asked: Mutex<Vec<Value>>,
}

impl ModelServer {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Value>) -> Self {
        let script = Arc::new(Script::default());
        script.replies.lock().unwrap().extend(replies);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let answering = Arc::clone(&script);
        let answer = move |body: Bytes| {
            let asked: Value = everturn::serde_json::from_slice(&body).unwrap();
            answering.asked.lock().unwrap().push(asked["request"].clone());
            let reply = answering.replies.lock().unwrap().pop_front();
            async move {
                match reply {
                    Some(reply) => (StatusCode::OK, reply.to_string()),
                    None => (StatusCode::SERVICE_UNAVAILABLE, "out of replies".to_owned()),
                }
            }
        };
        let router = Router::new().route("/", post(answer));
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self { url, script, serving }
    }

    /// Adds a reply.
    pub(crate) fn then(&self, reply: Value) {
        self.script.replies.lock().unwrap().push_back(reply);
    }

    /// Returns the requests so far.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.script.asked.lock().unwrap().clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
