//! A server of three agents, and a client of it.

use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_agent::{ClientPermissions, agent};
use everturn_ai::{Replay, Tool, ToolContext, set_default_model};
use everturn_core::Registry;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_openai::ServeOpenAi;
use everturn_server::Server;
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A server that ends with the test.
pub(crate) struct Served {
    base: String,
    client: reqwest::Client,
    pub(crate) model: ScriptedModel,
    serving: JoinHandle<everturn_core::Result<()>>,
}

/// A status and a body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }

    /// The error's HTTP code, code and param.
    pub(crate) fn error(&self) -> (u16, String, Value) {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        let error = body["error"]
            .as_object()
            .unwrap_or_else(|| panic!("{}", self.body));
        for key in ["message", "type", "param", "code"] {
            assert!(error.contains_key(key), "{}", self.body);
        }
        let code = error["code"].as_str().unwrap_or_default().to_owned();
        (self.status, code, error["param"].clone())
    }

    /// The data of the events, checked for numbers without gaps.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        let events: Vec<Value> = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        events
    }
}

/// The name of each event.
pub(crate) fn names(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

impl Served {
    /// Serves `keeper`, with a store and three tools, `shaper`, which lets clients choose the form of its
    /// answers, `forgetful`, without a store, and `strict`, which allows clients nothing, on this model.
    pub(crate) async fn answering<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> Self {
        Self::with(ScriptedModel::new().replies(replies), |server| server).await
    }

    pub(crate) async fn with(model: ScriptedModel, change: impl FnOnce(Server) -> Server) -> Self {
        Self::beside(|_| (), model, change).await
    }

    /// Serves these agents and more.
    pub(crate) async fn beside(
        define: impl FnOnce(&Registry),
        model: ScriptedModel,
        change: impl FnOnce(Server) -> Server,
    ) -> Self {
        let registry = Registry::new();
        define(&registry);
        model.register(&registry, "scripted").unwrap();
        set_default_model(&registry, "scripted");
        let look = Tool::new("look", "Looks.", |_: Value, _: ToolContext| async { Ok("seen") })
            .with_replay(Replay::Pure);
        let ask = Tool::interrupt::<Value, Value>("ask", "Asks a person.");
        let pay = Tool::new("pay", "Pays.", |sum: Value, context: ToolContext| async move {
            if !context.is_restarted() {
                return Err(context.interrupt(json!({"confirm": sum})).into());
            }
            Ok("paid")
        });
        agent(&registry, "keeper")
            .system("You keep.")
            .tools([look.clone(), ask, pay])
            .client_permissions(ClientPermissions::none().instructions().tools())
            .store(MemoryStore::new())
            .define()
            .unwrap();
        agent(&registry, "shaper")
            .tool(look)
            .client_permissions(ClientPermissions::none().output_schema())
            .store(MemoryStore::new())
            .define()
            .unwrap();
        agent(&registry, "forgetful")
            .client_permissions(ClientPermissions::none().instructions().tools())
            .define()
            .unwrap();
        agent(&registry, "strict")
            .system("You keep.")
            .store(MemoryStore::new())
            .define()
            .unwrap();
        let server = Server::new(&registry).stream_log(MemoryStreamLog::new()).openai();
        let bound = change(server).bind(("127.0.0.1", 0)).await.unwrap();
        everturn_core::install_tls_provider();
        Self {
            base: format!("http://{}/v1", bound.address()),
            client: reqwest::Client::builder()
                .timeout(Duration::from_mins(1))
                .build()
                .unwrap(),
            model,
            serving: tokio::spawn(bound.run()),
        }
    }

    /// The host and port.
    pub(crate) fn address(&self) -> String {
        let address = self.base.trim_start_matches("http://");
        address.trim_end_matches("/v1").to_owned()
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.base))
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        answer(self.request("POST", path).json(&body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(self.request("GET", path)).await
    }

    /// One turn of `keeper`.
    pub(crate) async fn respond(&self, body: Value) -> Answer {
        let mut whole = json!({ "model": "keeper" });
        whole
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        self.post("/responses", whole).await
    }

    /// The last request to the model, a line for each message.
    pub(crate) fn asked(&self) -> Vec<String> {
        let request = self.model.last_request().unwrap();
        request
            .messages
            .iter()
            .map(|message| {
                let parts = message.content().iter().map(|part| {
                    let call = part
                        .as_tool_request()
                        .map(|request| format!("[call {}]", request.name));
                    let result = part
                        .as_tool_response()
                        .map(|response| format!("[result {}]", response.output.clone().unwrap_or_default()));
                    part.as_text()
                        .map(str::to_owned)
                        .or(call)
                        .or(result)
                        .unwrap_or_default()
                });
                format!("{}: {}", message.role(), parts.collect::<String>())
            })
            .collect()
    }
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.text().await.unwrap(),
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A function of the caller.
pub(crate) fn paint() -> Value {
    json!({"type": "function", "name": "paint", "parameters": {"type": "object"}})
}
