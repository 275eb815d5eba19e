//! An application as an MCP server.

mod agents;
mod asking;
#[cfg(feature = "http")]
mod http;
mod lists;
mod prompts;
mod resources;
mod session;
mod spent;
mod tasks;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::IntoStore;
use everturn_core::{Context, Descriptor, Error, Exposure, Registry, Result};
use rmcp::model::RequestStateCodec;
use rmcp::service::{ServerInitializeError, serve_server};
use rmcp::transport::IntoTransport;
use rmcp::{RoleServer, transport};

use self::session::Session;
use self::spent::Spent;
use crate::ByteStream;

/// The time after which the call of an agent becomes a task.
const TASK_AFTER: Duration = Duration::from_secs(5);

/// The tools, prompts, resources and agents of an application for MCP clients. Cloning is cheap.
///
/// It supports the stateless version 2026-07-28 of the protocol and the earlier versions with a handshake.
///
/// - A tool is a tool of the same name.
/// - An agent is a tool that takes `{message, sessionId?}`. It returns text and
///   `{sessionId, snapshotId, finishReason}`.
/// - Prompts and resources are the same.
/// - An interrupt is a question to the user. Put `message` and `schema` into its data to choose the form.
///
/// ```no_run
/// use everturn_ai::{Tool, ToolContext};
/// use everturn_core::{Registry, Result};
/// use everturn_mcp::McpServer;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// let double = Tool::new("double", "Doubles a number.", |n: i64, _cx: ToolContext| async move { Ok(n * 2) });
/// double.register(&registry)?;
///
/// McpServer::new(&registry).name("maths", "1.0.0").serve_stdio().await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a server serves once it is given a transport"]
pub struct McpServer(Arc<Exposed>);

type Filter = Arc<dyn Fn(&Descriptor) -> bool + Send + Sync>;

/// The exposed actions and the settings.
#[derive(Clone)]
struct Exposed {
    registry: Registry,
    name: String,
    version: String,
    instructions: Option<String>,
    filter: Filter,
    /// The context of calls whose transport provides none.
    context: Context,
    exposure: Exposure,
    task_after: Duration,
    /// Seals the state that clients return with an answer.
    codec: Arc<RequestStateCodec>,
    /// The questions that were answered.
    spent: Spent,
    #[cfg(feature = "http")]
    hosts: Vec<String>,
    #[cfg(feature = "http")]
    origins: Vec<String>,
}

impl McpServer {
    /// Creates a server of all tools, prompts, resources and agents in a registry.
    pub fn new(registry: &Registry) -> Self {
        let key = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes);
        Self(Arc::new(Exposed {
            registry: registry.clone(),
            name: "everturn".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: None,
            filter: Arc::new(|_| true),
            context: Context::new(),
            exposure: Exposure::Public,
            task_after: TASK_AFTER,
            codec: Arc::new(RequestStateCodec::try_new(key.concat()).expect("32 bytes are enough for a key")),
            spent: Spent::default(),
            #[cfg(feature = "http")]
            hosts: Vec::new(),
            #[cfg(feature = "http")]
            origins: Vec::new(),
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Exposed)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Sets the server's name and version, which clients display.
    pub fn name(self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.edit(|exposed| {
            exposed.name = name.into();
            exposed.version = version.into();
        })
    }

    /// Sets the instructions for models that use this server.
    pub fn instructions(self, instructions: impl Into<String>) -> Self {
        self.edit(|exposed| exposed.instructions = Some(instructions.into()))
    }

    /// Exposes only tools, prompts, resources and agents whose descriptors pass the filter.
    pub fn only(self, filter: impl Fn(&Descriptor) -> bool + Send + Sync + 'static) -> Self {
        self.edit(|exposed| exposed.filter = Arc::new(filter))
    }

    /// Sets the context of calls over standard input and output, such as their principal.
    pub fn context(self, context: Context) -> Self {
        self.edit(|exposed| exposed.context = context)
    }

    /// Sets how much of an error clients receive, where the HTTP server does not define it; public text only
    /// by default.
    pub fn exposure(self, exposure: Exposure) -> Self {
        self.edit(|exposed| exposed.exposure = exposure)
    }

    /// Sets the time after which the call of an agent continues in the background as a task, for clients that
    /// support tasks and agents with a store; 5 seconds by default.
    pub fn task_after(self, time: Duration) -> Self {
        self.edit(|exposed| exposed.task_after = time)
    }

    /// Sets the key that seals the state of a question, of at least 32 bytes, and the store in which answered
    /// questions are recorded; a random key and the memory of the process by default.
    ///
    /// Processes that serve the same clients need the same key, because the answer to a question of one
    /// process may reach another or arrive after a restart. The store ensures that a question is answered
    /// once among all of them. Its agents must keep [journals](everturn_agent::Journaling) for a day or
    /// longer, because a question can be answered for a day.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the key is too short or the store keeps no journals.
    pub fn state_key(self, key: impl Into<Vec<u8>>, store: impl IntoStore) -> Result<Self> {
        let codec = RequestStateCodec::try_new(key)
            .map_err(|error| Error::invalid_argument(format!("the key cannot be used: {error}")))?;
        let spent = Spent::in_store(store)?;
        Ok(self.edit(|exposed| {
            exposed.codec = Arc::new(codec);
            exposed.spent = spent;
        }))
    }

    /// Serves over standard input and output until the client disconnects. Nothing else may write to standard
    /// output.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the client's first message violates the protocol. A client that disconnects without a
    /// message is not an error.
    pub async fn serve_stdio(self) -> Result<()> {
        Box::pin(self.serve(transport::stdio())).await
    }

    /// Serves over any stream of bytes, such as a socket, until the client disconnects.
    ///
    /// # Errors
    /// As [`McpServer::serve_stdio`].
    pub async fn serve_stream(self, stream: impl ByteStream) -> Result<()> {
        Box::pin(self.serve(tokio::io::split(stream))).await
    }

    async fn serve<T, E, A>(self, transport: T) -> Result<()>
    where
        T: IntoTransport<RoleServer, E, A> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
        A: 'static,
    {
        let serving = match serve_server(Session::new(self.0), transport).await {
            Ok(serving) => serving,
            // A client disconnects by closing the connection, also before its first message.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => {
                let message = format!("the MCP client did not begin as it should: {error}");
                return Err(Error::unavailable(message));
            }
        };
        let ended = serving.waiting().await;
        ended.map_err(|error| Error::internal(format!("serving the MCP client failed: {error}")))?;
        Ok(())
    }
}

everturn_core::opaque_debug!(McpServer, 0.name, 0.version);
