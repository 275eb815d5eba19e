//! A server of a few agents, and a client of it that follows the protocol's rules.

#[path = "../../../../everturn-server/tests/it/support/counting.rs"]
pub(crate) mod counting;
pub(crate) mod verifier;

use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    AgentSession, Artifact, ClientPermissions, Delegation, IntoStore, Session, SnapshotIds, agent,
    custom_agent,
};
use everturn_agui::ServeAgui;
use everturn_ai::{FromToolContext, Message, Replay, Tool, ToolContext, ToolRequest, set_default_model};
use everturn_core::Registry;
use everturn_openai::ServeOpenAi;
use everturn_server::Server;
use everturn_testkit::{Gate, Reply, ScriptedModel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use self::verifier::verify;

/// A server that ends with the test.
pub(crate) struct Served {
    pub(crate) base: String,
    client: reqwest::Client,
    pub(crate) model: ScriptedModel,
    pub(crate) registry: Registry,
    /// Where the tool `hold` waits.
    pub(crate) hold: Gate,
    serving: JoinHandle<everturn_core::Result<()>>,
}

/// A status and a body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Counter {
    pub(crate) counter: u32,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }

    /// The status and the message of an error.
    pub(crate) fn error(&self) -> (u16, String, String) {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        let text = |name: &str| body[name].as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
        (self.status, text("status"), text("message"))
    }

    /// The events, checked as clients check them.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        let data = self
            .body
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "));
        let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        verify(&events).unwrap_or_else(|fault| panic!("{fault}: {events:#?}"));
        events
    }

    /// The last event, which ends the run.
    pub(crate) fn end(&self) -> Value {
        self.events().pop().unwrap()
    }

    /// The text of the agent.
    pub(crate) fn text(&self) -> String {
        let events = self.events();
        let deltas = events
            .iter()
            .filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
        deltas.map(|event| event["delta"].as_str().unwrap()).collect()
    }
}

/// The type of each event.
pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

/// The first event of a type.
pub(crate) fn first<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    let found = events.iter().find(|event| event["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {events:#?}"))
}

/// A reply that calls a tool.
pub(crate) fn call(name: &str, input: Value) -> Reply {
    Reply::tools([ToolRequest::new(name, input).with_reference("ref-1")])
}

pub(crate) fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "content": text})
}

pub(crate) fn paint() -> Value {
    json!({"name": "paint", "description": "Paints.", "parameters": {"type": "object"}})
}

impl Served {
    pub(crate) async fn answering<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> Self {
        Self::with(ScriptedModel::new().replies(replies), |server| server).await
    }

    pub(crate) async fn with(model: ScriptedModel, change: impl FnOnce(Server) -> Server) -> Self {
        Self::on(MemoryStore::new(), model, change).await
    }

    /// Serves `keeper`, a prompt agent with a store and tools; `tally`, with a state that its tool changes;
    /// `sharer`, which accepts the client's state; `forgetful`, without a store; `counter`, with a state, a
    /// status and an artifact; `boss`, which delegates to `forgetful`; and `hasher`, whose snapshots are
    /// named after their content.
    pub(crate) async fn on(
        store: impl IntoStore,
        model: ScriptedModel,
        change: impl FnOnce(Server) -> Server,
    ) -> Self {
        let store = store.into_store();
        let registry = Registry::new();
        model.register(&registry, "scripted").unwrap();
        set_default_model(&registry, "scripted");
        let look = Tool::new("look", "Looks.", |_: Value, _: ToolContext| async { Ok("seen") })
            .with_replay(Replay::Pure);
        let ask = Tool::interrupt::<Value, Counter>("ask", "Asks a person.");
        let pay = Tool::new("pay", "Pays.", |sum: Value, context: ToolContext| async move {
            if !context.is_restarted() {
                return Err(context.interrupt(json!({"confirm": sum})).into());
            }
            Ok("paid")
        })
        .with_decision::<Value>();
        let props = Tool::new("props", "Tells.", |_: Value, context: ToolContext| async move {
            Ok(context.context().value("client").cloned().unwrap_or_default())
        });
        let gate = Gate::new();
        let passed = gate.clone();
        let hold = Tool::new("hold", "Waits.", move |_: Value, _: ToolContext| {
            let passed = passed.clone();
            async move {
                passed.pass().await;
                Ok("held")
            }
        })
        .with_replay(Replay::Idempotent);
        agent(&registry, "keeper")
            .system("You keep.")
            .tools([look.clone(), ask.clone(), pay.clone(), hold, props])
            .client_permissions(additions())
            .store(store.clone())
            .define()
            .unwrap();
        agent(&registry, "hasher")
            .tool(ask.clone())
            .snapshot_ids(SnapshotIds::ContentAddressed)
            .store(store.clone())
            .define()
            .unwrap();
        let count = Tool::new("count", "Counts.", |_: Value, context: ToolContext| async move {
            let tally = Session::<Counter>::from_tool_context(&context)?;
            Ok(tally.update_custom(|tally| {
                tally.counter += 1;
                tally.counter
            }))
        });
        let count = count.requiring::<Session<Counter>>();
        agent(&registry, "sharer")
            .custom::<Counter>()
            .tool(count.clone())
            .client_permissions(ClientPermissions::none().custom())
            .store(store.clone())
            .define()
            .unwrap();
        agent(&registry, "tally")
            .custom::<Counter>()
            .system("Counted: {{@custom.counter}}.")
            .tools([count, ask])
            .store(store.clone())
            .define()
            .unwrap();
        agent(&registry, "forgetful")
            .tools([look, pay])
            .client_permissions(additions())
            .public()
            .define()
            .unwrap();
        agent(&registry, "boss")
            .use_middleware(Delegation::to(["forgetful"]))
            .store(store.clone())
            .define()
            .unwrap();
        counter(&registry, store);
        let server = Server::new(&registry).agui().openai();
        let bound = change(server).bind(("127.0.0.1", 0)).await.unwrap();
        everturn_core::install_tls_provider();
        Self {
            base: format!("http://{}", bound.address()),
            client: reqwest::Client::builder()
                .timeout(Duration::from_mins(1))
                .build()
                .unwrap(),
            model,
            registry,
            hold: gate,
            serving: tokio::spawn(bound.run()),
        }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.base))
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        answer(self.request("POST", path).json(body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(self.request("GET", path)).await
    }

    /// A run of an agent in the thread `t`, with further members of its input.
    pub(crate) async fn run_of(&self, agent: &str, run: &str, messages: Value, more: Value) -> Answer {
        let mut body = json!({
            "threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": messages,
            "state": {}, "tools": [], "context": [], "forwardedProps": {},
        });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.post(&format!("/agui/{agent}"), &body).await
    }

    /// A run of `keeper` in the thread `t`.
    pub(crate) async fn run(&self, run: &str, messages: Value) -> Answer {
        self.run_of("keeper", run, messages, json!({})).await
    }

    /// The thread `t` of an agent, as a client that connects gets it.
    pub(crate) async fn connect(&self, agent: &str) -> Vec<Value> {
        let body = json!({"threadId": "t", "runId": "connect", "protocolVersion": "1.0", "messages": []});
        self.post(&format!("/agui/{agent}/connect"), &body).await.events()
    }

    /// The messages of the thread `t` of `keeper`, as a client holds them.
    pub(crate) async fn thread(&self) -> Vec<Value> {
        let events = self.connect("keeper").await;
        first(&events, "MESSAGES_SNAPSHOT")["messages"]
            .as_array()
            .unwrap()
            .clone()
    }

    /// The last request to the model, a line for each message.
    pub(crate) fn asked(&self) -> Vec<String> {
        let request = self.model.last_request().unwrap();
        let lines = request.messages.iter().map(|message| {
            let parts = message.content().iter().map(|part| {
                let call = part
                    .as_tool_request()
                    .map(|request| format!("[call {}]", request.name));
                let result = part.as_tool_response();
                let result = result
                    .map(|response| format!("[result {}]", response.output.clone().unwrap_or_default()));
                let media = part.as_media().map(|media| format!("[media {}]", media.url));
                part.as_text()
                    .map(str::to_owned)
                    .or(call)
                    .or(result)
                    .or(media)
                    .unwrap_or_default()
            });
            format!("{}: {}", message.role(), parts.collect::<String>())
        });
        lines.collect()
    }
}

/// Defines an agent with a state, a status and an artifact.
fn counter(registry: &Registry, store: impl IntoStore) {
    custom_agent(registry, "counter", |session: AgentSession<Counter>| async move {
        session
            .run(|turn| async move {
                turn.send_status("counting").await?;
                turn.update_custom(|state| state.counter += 1);
                turn.update_custom(|state| state.counter += 1);
                turn.send_artifact(Artifact::text("sheet", "1, 2")).await?;
                turn.add_message(Message::model("Counted."));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .status::<String>()
    .store(store)
    .define()
    .unwrap();
}

/// The tools and context of a front end.
fn additions() -> ClientPermissions {
    ClientPermissions::none().tools().instructions()
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    Answer {
        status: response.status().as_u16(),
        body: response.text().await.unwrap(),
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
