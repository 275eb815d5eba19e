//! The servers that an application uses.

use std::fmt;
use std::sync::Arc;

use everturn_core::{ActionType, DynAction, Error, HandlerResult, Plugin, Registry, Result};
use futures::future::{BoxFuture, join_all};

use crate::endpoint::{ByteStream, Endpoint, HttpServer, StdioServer};
use crate::remote_server::RemoteServer;
use crate::settings::{Answer, Elicitation, Sampled, Sampling, Settings};

/// MCP servers whose tools, prompts and resources an application uses.
///
/// The tool `read` of the server `files` is the tool `files/read`; `files/*` names all its tools. Prompts and
/// resources are named likewise. A server is connected when the application is built. If it is unreachable
/// then, or disconnects later, it is connected on demand. Its tools, prompts and resources are registered
/// again when it announces a change. A failing server does not affect the others.
///
/// ```no_run
/// use everturn_ai::Generate;
/// use everturn_core::{Registry, Result};
/// use everturn_mcp::{HttpServer, McpServers, StdioServer};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// let servers = McpServers::new()
///     .stdio("files", StdioServer::new("npx").args(["-y", "@modelcontextprotocol/server-filesystem", "/srv/recipes"]))
///     .http("search", HttpServer::new("https://search.example/mcp").bearer("a token"));
/// servers.install(&registry).await?;
///
/// let reply = Generate::new(&registry).prompt("What can I cook?").tool("files/*").tool("search/query").await?;
/// # let _ = reply;
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "servers are used once they are installed"]
pub struct McpServers {
    endpoints: Vec<(String, Endpoint)>,
    settings: Settings,
}

impl McpServers {
    /// Creates an empty list of servers.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, name: impl Into<String>, endpoint: Endpoint) -> Self {
        self.endpoints.push((name.into(), endpoint));
        self
    }

    /// Adds a server that is a program.
    pub fn stdio(self, name: impl Into<String>, server: impl Into<StdioServer>) -> Self {
        self.with(name, Endpoint::Stdio(server.into()))
    }

    /// Adds a server at an address.
    pub fn http(self, name: impl Into<String>, server: impl Into<HttpServer>) -> Self {
        self.with(name, Endpoint::Http(server.into()))
    }

    /// Adds a server at the other end of any stream of bytes, such as a socket; `connect` opens one.
    pub fn stream<F, Fut, S>(self, name: impl Into<String>, connect: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<S>> + Send + 'static,
        S: ByteStream,
    {
        let connect = Arc::new(connect);
        let open = move || -> BoxFuture<'static, Result<Box<dyn ByteStream>>> {
            let connect = Arc::clone(&connect);
            Box::pin(async move { Ok(Box::new(connect().await?) as Box<dyn ByteStream>) })
        };
        self.with(name, Endpoint::Stream(Arc::new(open)))
    }

    /// Sets the handler for questions that servers of protocol versions before 2026-07-28 ask during a call.
    ///
    /// Without a handler such questions are declined. Newer servers do not use it: a question of their tools
    /// becomes an interrupt, which can be answered at any later time.
    pub fn on_elicitation<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Elicitation) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Answer>> + Send + 'static,
    {
        self.settings.elicitation = Some(Arc::new(move |asked| Box::pin(handler(asked))));
        self
    }

    /// Sets the handler that generates text for servers, at this application's expense. Without a handler
    /// sampling is not offered.
    ///
    /// The protocol deprecates sampling. A handler decides which servers may use which models, and how much.
    pub fn on_sampling<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Sampling) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Sampled>> + Send + 'static,
    {
        self.settings.sampling = Some(Arc::new(move |asked| Box::pin(handler(asked))));
        self
    }

    /// Connects all servers concurrently and registers their tools, prompts and resources.
    ///
    /// An unreachable server is logged and connected again on demand. The servers stay connected as long as
    /// the registry, or the returned handle, exists.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if a plugin or another server has a server's name; `INVALID_ARGUMENT` for a name that
    /// is empty or contains a slash.
    pub async fn install(&self, registry: &Registry) -> Result<Connections> {
        let settings = Arc::new(self.settings.clone());
        let mut servers = Vec::with_capacity(self.endpoints.len());
        for (name, endpoint) in &self.endpoints {
            if name.is_empty() || name.contains('/') {
                return Err(Error::invalid_argument(format!(
                    "'{name}' cannot be the name of an MCP server: it must not be empty and must not contain '/'"
                )));
            }
            let server = Arc::new(RemoteServer::new(name, endpoint.clone(), &settings, registry));
            registry.install(Arc::new(Installed {
                name: name.clone(),
                server: Arc::clone(&server),
            }))?;
            servers.push(server);
        }
        join_all(servers.iter().map(connect)).await;
        Ok(Connections { servers })
    }
}

async fn connect(server: &Arc<RemoteServer>) {
    if let Err(error) = server.link().await {
        tracing::warn!(server = %server.name, %error, "an MCP server is not there; it is tried again when it is needed");
    }
}

/// The installed servers of an application. Cloning is cheap.
#[derive(Clone)]
pub struct Connections {
    servers: Vec<Arc<RemoteServer>>,
}

impl Connections {
    /// Returns the names of the connected servers.
    pub async fn connected(&self) -> Vec<String> {
        let mut names = Vec::new();
        for server in &self.servers {
            if server.is_connected().await {
                names.push(server.name.to_string());
            }
        }
        names
    }

    /// Closes all connections and ends their processes. A later use connects again.
    pub async fn disconnect(&self) {
        join_all(self.servers.iter().map(|server| server.disconnect())).await;
    }
}

everturn_core::opaque_debug!(Connections);

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.endpoints.iter().map(|(name, _)| name).collect();
        f.debug_struct("McpServers")
            .field("servers", &names)
            .field("settings", &self.settings)
            .finish()
    }
}

/// Connects the servers while the application is built, as [`McpServers::install`] does.
impl Plugin for McpServers {
    fn name(&self) -> &'static str {
        "mcp"
    }

    fn set_up<'a>(&'a self, registry: &'a Registry) -> BoxFuture<'a, HandlerResult<()>> {
        Box::pin(async move {
            self.install(registry).await?;
            Ok(())
        })
    }
}

/// One server as a plugin. Its entries are in the registry while it is connected, so lookups reach the plugin
/// only while it is disconnected.
struct Installed {
    name: String,
    server: Arc<RemoteServer>,
}

impl Plugin for Installed {
    fn name(&self) -> &str {
        &self.name
    }

    fn resolve<'a>(
        &'a self,
        action_type: &'a ActionType,
        id: &'a str,
    ) -> BoxFuture<'a, HandlerResult<Option<Arc<dyn DynAction>>>> {
        Box::pin(async move {
            if self.server.is_connected().await {
                return Ok(None);
            }
            self.server.link().await?;
            Ok(self.server.registered(action_type, id))
        })
    }
}
