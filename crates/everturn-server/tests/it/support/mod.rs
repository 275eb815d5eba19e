//! A server on a free port, and a client that keeps what it is answered.

pub(crate) mod agents;
pub(crate) mod counting;

use std::time::Duration;

use everturn_core::{Registry, Result};
use everturn_server::{Server, ServerHandle};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A server that ends with the test.
pub(crate) struct Served {
    pub(crate) base: String,
    pub(crate) client: reqwest::Client,
    pub(crate) handle: ServerHandle,
    serving: Option<JoinHandle<Result<()>>>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Served {
    pub(crate) async fn start(server: Server) -> Self {
        everturn_core::install_tls_provider();
        let bound = server.bind(("127.0.0.1", 0)).await.unwrap();
        Self {
            base: format!("http://{}", bound.address()),
            client: reqwest::Client::builder()
                .timeout(Duration::from_secs(30))
                .build()
                .unwrap(),
            handle: bound.handle(),
            serving: Some(tokio::spawn(bound.run())),
        }
    }

    /// Everything in a registry.
    pub(crate) async fn of(registry: &Registry) -> Self {
        Self::start(Server::new(registry)).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client.post(self.url(path)).json(body)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        answer(self.request(path, body)).await
    }

    /// Posts and asks for a stream.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> Answer {
        answer(self.request(path, body).header("accept", "text/event-stream")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(self.client.get(self.url(path))).await
    }

    /// Waits until the server has ended.
    pub(crate) async fn ended(&mut self) {
        let serving = self.serving.take().unwrap();
        serving.await.unwrap().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// Sends a request and reads the whole answer.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.text().await.unwrap(),
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The events of a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let events = self.body.split_terminator("\n\n");
        events
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect()
    }

    /// The `result` of a call that succeeded.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["result"].clone()
    }

    /// Checks that nothing is served at the path.
    #[track_caller]
    pub(crate) fn assert_no_such_path(&self) {
        assert_eq!(self.status, 404, "{self:?}");
        assert_eq!(
            self.json(),
            json!({ "message": "nothing is served at this path" })
        );
    }

    /// Checks that this is a failure in the one form that failures have.
    #[track_caller]
    pub(crate) fn assert_failure(&self, code: u16, status: &str) {
        assert_eq!(self.status, code, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], status, "{self:?}");
        assert!(body["message"].is_string(), "{self:?}");
    }
}
