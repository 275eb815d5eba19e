//! An application that is served, and one that uses it.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_ai::prompt::PromptDefinition;
use everturn_ai::{Media, Replay, Resource, Tool, ToolContext, define_resource, set_default_model};
use everturn_core::{Error, Registry, Result};
use everturn_mcp::{Connections, McpServer, McpServers};
use everturn_server::{Server, ServerHandle};
use everturn_testkit::{EchoModel, Gate, ScriptedModel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Sum {
    pub(crate) a: i64,
    pub(crate) b: i64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Total {
    pub(crate) total: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Wish {
    dish: String,
    guests: u32,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Order {
    euros: u32,
}

/// An application with a bit of everything.
pub(crate) fn kitchen() -> Registry {
    let registry = Registry::new();
    let add = Tool::new(
        "add",
        "Adds two numbers.",
        |sum: Sum, _: ToolContext| async move { Ok(Total { total: sum.a + sum.b }) },
    );
    let shout = Tool::new(
        "shout",
        "Says it louder.",
        |text: String, _: ToolContext| async move { Ok(text.to_uppercase()) },
    );
    let look = Tool::new(
        "look",
        "Shows the dish.",
        |_: Wanted, cx: ToolContext| async move {
            cx.attach(Media::new("data:image/png;base64,AAAA").with_content_type("image/png"));
            Ok("here it is")
        },
    );
    let spill = Tool::new("spill", "Fails.", |_: Wanted, _: ToolContext| async move {
        Err::<(), _>(
            Error::unavailable("the secret ingredient is gone").with_public_message("no soup today"),
        )?;
        Ok(())
    });
    let pay = Tool::new(
        "pay",
        "Pays, when somebody allows it.",
        |order: Order, cx: ToolContext| async move {
            let Some(approval) = cx.answer_value() else {
                let schema = json!({
                    "type": "object",
                    "properties": { "by": { "type": "string" } },
                    "required": ["by"],
                });
                Err::<(), _>(
                    cx.interrupt(json!({ "message": format!("Pay {}?", order.euros), "schema": schema })),
                )?;
                return Ok(String::new());
            };
            Ok(format!("{} paid, allowed by {}", order.euros, approval["by"]))
        },
    );
    for tool in [add.with_replay(Replay::Pure), shout, look, spill, pay] {
        tool.register(&registry).unwrap();
    }
    EchoModel.register(&registry, "echo").unwrap();
    set_default_model(&registry, "echo");
    PromptDefinition::new("recipe")
        .description("Asks for a recipe.")
        .input::<Wish>()
        .system("You are a chef.")
        .prompt("{{dish}} for {{guests}}, please.")
        .define(&registry)
        .unwrap();
    let menu = Resource::new("kitchen://menu", |_| async { Ok("Leek soup.") });
    let recipes = Resource::template("recipe://{dish}", |input| async move {
        Ok(format!("How to cook {}.", input.variables["dish"]))
    });
    define_resource(&registry, &menu).unwrap();
    define_resource(&registry, &recipes.unwrap()).unwrap();
    everturn_agent::agent(&registry, "parrot")
        .system("Repeat what you hear.")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    registry
}

/// The input of a tool without parameters.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Wanted {}

/// Adds a tool that waits at a gate during its work, and reports progress there. The token is cancelled when
/// a call of the tool has ended.
pub(crate) fn add_patient(registry: &Registry, gate: &Gate) -> CancellationToken {
    let left = CancellationToken::new();
    let (gate, over) = (gate.clone(), left.clone());
    let tool = Tool::new("wait", "Takes its time.", move |_: Wanted, cx: ToolContext| {
        let (gate, over) = (gate.clone(), over.clone());
        async move {
            let _over = over.drop_guard();
            cx.send_partial(json!({ "progress": 1, "total": 2, "message": "half" }))
                .await;
            gate.pass().await;
            Ok("done")
        }
    });
    tool.register(registry).unwrap();
    left
}

/// An application that uses a server, over a new stream each time.
pub(crate) async fn client_of(server: McpServer) -> (Registry, Connections) {
    client_with(McpServers::new(), server).await
}

pub(crate) async fn client_with(servers: McpServers, server: McpServer) -> (Registry, Connections) {
    let registry = Registry::new();
    let servers = servers.stream("s", move || {
        let server = server.clone();
        async move { Ok(spawn(server)) }
    });
    let connections = servers.install(&registry).await.unwrap();
    (registry, connections)
}

fn spawn(server: McpServer) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(server.serve_stream(theirs));
    ours
}

/// The kitchen for a client.
pub(crate) async fn kitchen_client() -> (Registry, Connections) {
    client_of(McpServer::new(&kitchen())).await
}

/// A model for the client's application that plays a script.
pub(crate) fn script(registry: &Registry) -> ScriptedModel {
    let model = ScriptedModel::new();
    model.register(registry, "script").unwrap();
    set_default_model(registry, "script");
    model
}

/// A kitchen over HTTP, until it is dropped.
pub(crate) struct Served {
    pub(crate) url: String,
    handle: ServerHandle,
}

impl Served {
    pub(crate) async fn start(server: Server) -> Self {
        everturn_core::install_tls_provider();
        let server = server.bind(("127.0.0.1", 0)).await.unwrap();
        let (address, handle) = (server.address(), server.handle());
        tokio::spawn(server.run());
        Self {
            url: format!("http://{address}/mcp"),
            handle,
        }
    }

    pub(crate) async fn kitchen() -> Self {
        let registry = kitchen();
        Self::start(Server::new(&registry).adapter("/mcp", McpServer::new(&registry))).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.shut_down();
    }
}

/// Runs a tool of the client's application.
pub(crate) async fn run(registry: &Registry, tool: &str, input: impl Serialize) -> Result<serde_json::Value> {
    let tool = everturn_ai::lookup_tool(registry, tool).await?;
    Ok(tool.run(input).await?.output.unwrap_or_default())
}

pub(crate) type Shared<T> = Arc<std::sync::Mutex<T>>;
