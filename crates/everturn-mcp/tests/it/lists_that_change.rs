//! Changed lists of a server update the registry.

use std::sync::{Arc, Mutex};

use everturn_ai::{ToolContext, lookup_tool};
use everturn_core::{ActionType, Registry};
use everturn_mcp::{McpServer, McpServers};
use everturn_server::Server;
use everturn_testkit::eventually;
use rmcp::model::{
    DiscoverRequestMethod, DiscoverResult, ErrorData, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool, ToolsCapability,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ClientHandler, RoleClient, RoleServer, ServerHandler, ServiceExt};
use serde_json::Map;
use tokio::sync::watch;

use crate::support::{Served, Wanted, client_of, kitchen};

/// Offers tools that change while it runs.
#[derive(Clone)]
struct Changing {
    tools: Arc<Mutex<Vec<(&'static str, &'static str)>>>,
    changed: watch::Sender<()>,
    /// Whether it supports only the versions with a handshake.
    is_old: bool,
}

impl Changing {
    fn new(is_old: bool) -> Self {
        Self {
            tools: Arc::new(Mutex::new(vec![("first", "one"), ("second", "two")])),
            changed: watch::channel(()).0,
            is_old,
        }
    }

    fn set(&self, tools: &[(&'static str, &'static str)]) {
        *self.tools.lock().unwrap() = tools.to_vec();
        self.changed.send_replace(());
    }
}

impl ServerHandler for Changing {
    fn get_info(&self) -> ServerConfig {
        let mut tools = ToolsCapability::default();
        tools.list_changed = Some(true);
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(tools);
        ServerConfig::new(capabilities)
    }

    async fn discover(&self, _context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        if self.is_old {
            return Err(ErrorData::method_not_found::<DiscoverRequestMethod>());
        }
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, self.get_info()))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.lock().unwrap().clone();
        let tools = tools
            .into_iter()
            .map(|(name, about)| Tool::new(name, about, Arc::new(Map::new())));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changed = self.changed.subscribe();
        tokio::spawn(async move {
            while changed.changed().await.is_ok() {
                let _ = context.peer.notify_tool_list_changed().await;
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changed = self.changed.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changed.changed() => match change {
                    Ok(()) => context.sink().notify_tool_list_changed().await.map_err(|error| {
                        ErrorData::internal_error(error.to_string(), None)
                    })?,
                    Err(_) => return Ok(()),
                },
            }
        }
    }
}

async fn tools_follow(server: Changing) {
    let registry = Registry::new();
    let servers = McpServers::new().stream("s", {
        let server = server.clone();
        move || {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let server = server.clone();
            tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
            async move { Ok(ours) }
        }
    });
    let _connections = servers.install(&registry).await.unwrap();
    assert!(lookup_tool(&registry, "s/first").await.is_ok());
    eventually("the server is watched", async || {
        server.changed.receiver_count() > 0
    })
    .await;

    server.set(&[("second", "changed"), ("third", "three")]);

    eventually("the third tool is listed", async || {
        lookup_tool(&registry, "s/third").await.is_ok()
    })
    .await;
    assert!(lookup_tool(&registry, "s/first").await.is_err());
    assert_eq!(
        lookup_tool(&registry, "s/second").await.unwrap().description(),
        "changed"
    );
}

#[tokio::test]
async fn a_server_of_the_stateless_version_is_listened_to() {
    tools_follow(Changing::new(false)).await;
}

#[tokio::test]
async fn a_server_with_a_handshake_notifies_without_a_subscription() {
    tools_follow(Changing::new(true)).await;
}

/// A tool that says hello.
fn greeting(name: &str) -> everturn_ai::Tool {
    everturn_ai::Tool::new(name, "Says hello.", |_: Wanted, _: ToolContext| async {
        Ok("hello")
    })
}

/// Registers and removes a tool of an application while a client is connected, and waits for the client to
/// see it.
async fn client_follows(app: &Registry, client: &Registry) {
    greeting("late").register(app).unwrap();
    eventually("the late tool is listed", async || {
        lookup_tool(client, "s/late").await.is_ok()
    })
    .await;

    for kind in [ActionType::TOOL, ActionType::TOOL_V2] {
        app.remove(&kind.key("late"));
    }
    eventually("the late tool is gone", async || {
        lookup_tool(client, "s/late").await.is_err()
    })
    .await;
}

#[tokio::test]
async fn our_server_notifies_clients_of_the_stateless_version() {
    let app = kitchen();
    let (client, _connections) = client_of(McpServer::new(&app)).await;

    client_follows(&app, &client).await;
}

#[tokio::test]
async fn our_server_notifies_clients_over_http() {
    let app = kitchen();
    let served = Served::start(Server::new(&app).adapter("/mcp", McpServer::new(&app))).await;
    let client = Registry::new();
    let servers = McpServers::new().http("s", served.url.as_str());
    let _connections = servers.install(&client).await.unwrap();

    client_follows(&app, &client).await;
}

/// Counts notifications.
#[derive(Clone, Default)]
struct Counting(watch::Sender<usize>);

impl ClientHandler for Counting {
    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.0.send_modify(|count| *count += 1);
    }
}

#[tokio::test]
async fn our_server_notifies_clients_with_a_handshake() {
    let app = kitchen();
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(McpServer::new(&app).serve_stream(theirs));
    let told = Counting::default();
    // The plain form of this call makes the handshake of the versions before.
    let connection = told.clone().serve(ours).await.unwrap();
    assert!(connection.list_all_tools().await.unwrap().len() > 3);

    greeting("late").register(&app).unwrap();
    told.0.subscribe().wait_for(|count| *count > 0).await.unwrap();
}
