//! The application: a registry, and shortcuts for using it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::{
    AgentBuilder, AgentResult, AgentSession, Custom, CustomState, InlinePrompt, Limits, NamedPrompt,
    Recovery, RecoveryLoop, check_delegates, internal_agents, recover_all, recover_every,
    register_agent_middleware,
};
use everturn_ai::builtin_middleware::register_builtin_middleware;
use everturn_ai::prompt::{Mistakes, Prompt, PromptFolder, Reload, check_default_model, check_names};
use everturn_ai::{
    Generate, IntoTool, Model, ModelReference, Prices, ToolReference, register_generate, register_model,
    set_default_model,
};
use everturn_core::{
    ActionType, BidiFlow, Emitter, Error, Flow, Function, Inputs, Payload, Plugin, Registry, Result,
    StreamingFlow,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// How often a serving application polls for lost background runs. The interval adds little to the default
/// lease of one minute.
#[cfg(feature = "server")]
const RECOVERY_INTERVAL: Duration = Duration::from_secs(15);

/// An application: models, tools, prompts, flows and agents that refer to each other by name. Cloning is
/// cheap.
///
/// ```
/// use everturn::prelude::*;
/// use everturn::testkit::EchoModel;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let app = Everturn::builder().model("echo", EchoModel).default_model("echo").build().await?;
///
/// let parrot = app.agent("parrot").system("Repeat the message.").define()?;
///
/// assert!(parrot.run_text("hello").await?.text().contains("hello"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Everturn {
    registry: Registry,
}

/// Registers a model or tool, or adds a value, once the registry exists.
type SetUp = Box<dyn FnOnce(&Registry) -> Result<()> + Send>;

/// The settings of an application. Plugins, models, tools and folders add up; a later element replaces an
/// earlier one of the same name.
#[must_use = "nothing exists until the application is built"]
#[derive(Default)]
pub struct EverturnBuilder {
    plugins: Vec<Arc<dyn Plugin>>,
    models: Vec<(String, SetUp)>,
    tools: Vec<(String, SetUp)>,
    default_model: Option<ModelReference>,
    prompts: Vec<PathBuf>,
    definitions: Vec<SetUp>,
    /// The functions that add values to the registry, in order.
    values: Vec<SetUp>,
}

/// Adds a named element, replacing an earlier one of that name.
fn add(things: &mut Vec<(String, SetUp)>, name: String, set_up: SetUp) {
    match things.iter_mut().find(|(earlier, _)| *earlier == name) {
        Some(earlier) => earlier.1 = set_up,
        None => things.push((name, set_up)),
    }
}

impl EverturnBuilder {
    /// Adds a plugin, such as the models of a provider.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.retain(|earlier| earlier.name() != plugin.name());
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Adds a model under a name.
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        let name = name.into();
        let registered = name.clone();
        let set_up = move |registry: &Registry| register_model(registry, registered, model).map(drop);
        add(&mut self.models, name, Box::new(set_up));
        self
    }

    /// Registers a tool, so that prompts can name it.
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        let tool = tool.into_tool();
        let name = tool.name().to_owned();
        let set_up = move |registry: &Registry| match tool {
            ToolReference::Tool(tool) => tool.register(registry),
            ToolReference::Name(name) => Err(Error::invalid_argument(format!(
                "'{name}' is the name of a tool; register the tool itself"
            ))),
        };
        add(&mut self.tools, name, Box::new(set_up));
        self
    }

    /// Adds a value of the application, such as a database handle or configuration. Tools, flows and turn
    /// loops take it as an argument, `db: Dep<Db>`; other functions read it from their context
    /// ([`Context::dep`]). It replaces an earlier value of the same type.
    ///
    /// Defining an agent or flow fails if it takes a value that was not added.
    ///
    /// ```
    /// use everturn::prelude::*;
    ///
    /// struct Orders(Vec<&'static str>);
    ///
    /// /// Looks up one of the caller's orders.
    /// #[tool]
    /// async fn look_up(number: usize, orders: Dep<Orders>, caller: &Principal) -> Result<String> {
    ///     let missing = || Error::not_found(format!("{} has no order {number}", caller.id())).with_public();
    ///     Ok((*orders.0.get(number).ok_or_else(missing)?).to_owned())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let app = Everturn::builder().with(Orders(vec!["leeks", "butter"])).build().await?;
    /// let first = app.flow("first", |(): (), orders: Dep<Orders>| async move { Ok(orders.0[0].to_owned()) })?;
    /// let desk = app.agent("desk").tool(look_up).define()?;
    ///
    /// assert_eq!(first.run(()).await?, "leeks");
    /// # drop(desk);
    /// # Ok(()) }
    /// ```
    ///
    /// [`Context::dep`]: everturn_core::Context::dep
    pub fn with<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.values.push(Box::new(move |registry| {
            registry.provide(value);
            Ok(())
        }));
        self
    }

    /// Sets the prices of the application's models. The usage of turns and sessions then includes the cost of
    /// calls, which can be limited: see [`Budget::money`](everturn_ai::Budget::money).
    pub fn prices(self, prices: Prices) -> Self {
        self.with(prices)
    }

    /// Sets the usage limits of agents that set none.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.values.push(Box::new(move |registry| {
            everturn_agent::set_limits(registry, limits);
            Ok(())
        }));
        self
    }

    /// Declares that the context of every call contains a `T`. A server's context provider adds it
    /// (`Provided::with`), or the calling program does ([`Context::with`](everturn_core::Context::with)).
    /// Functions that take a `Dep<T>` can then be defined although the application has no such value; a call
    /// without one fails.
    pub fn with_each_call<T: Send + Sync + 'static>(mut self) -> Self {
        self.values.push(Box::new(|registry| {
            registry.provided_by_each_call::<T>();
            Ok(())
        }));
        self
    }

    everturn_core::setters! {
        /// Sets the model for requests that do not name one.
        pub fn default_model(mut self, model: impl Into<ModelReference>) {
            self.default_model = Some(model.into());
        }

        /// Adds definitions that the prompts of folders may refer to: partials, helpers, schemas, middleware.
        /// They run before the prompts are read.
        ///
        /// ```
        /// use everturn::ai::prompt::define_partial;
        /// use everturn::prelude::*;
        ///
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
        /// let app = Everturn::builder()
        ///     .define(|registry| {
        ///         define_partial(registry, "closing", "Sign with your name.");
        ///         Ok(())
        ///     })
        ///     .build()
        ///     .await?;
        /// # Ok(()) }
        /// ```
        pub fn define(mut self, define: impl FnOnce(&Registry) -> Result<()> + Send + 'static) {
            self.definitions.push(Box::new(define));
        }
    }

    /// Defines the prompts of a folder of `.prompt` files.
    ///
    /// The files may refer to models, tools and middleware added to this builder, to those of plugins, and to
    /// the definitions of [`define`](EverturnBuilder::define).
    ///
    /// With `EVERTURN_ENV=dev` or `GENKIT_ENV=dev` in the environment, changed files are reloaded.
    pub fn prompts(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        if !self.prompts.contains(&folder) {
            self.prompts.push(folder);
        }
        self
    }

    /// Builds the application, and waits until its plugins are [set up](Plugin::set_up).
    ///
    /// # Errors
    /// The error of a plugin, such as a missing key; `ALREADY_EXISTS` for two prompts of the same name;
    /// `NOT_FOUND` for a missing folder; `INVALID_ARGUMENT` for mistakes in `.prompt` files: frontmatter that
    /// is not YAML, unknown keys, templates that do not compile, and models, tools, middleware or partials
    /// that do not exist. One error lists all mistakes, with file and line.
    pub async fn build(self) -> Result<Everturn> {
        let registry = Registry::new();
        for give in self.values {
            give(&registry)?;
        }
        for plugin in &self.plugins {
            registry.install(Arc::clone(plugin))?;
        }
        register_generate(&registry)?;
        register_builtin_middleware(&registry)?;
        register_agent_middleware(&registry)?;
        for (_, set_up) in self.models.into_iter().chain(self.tools) {
            set_up(&registry)?;
        }
        for plugin in &self.plugins {
            let set_up = plugin.set_up(&registry).await;
            set_up.map_err(|error| Error::from(error).context(format_args!("plugin '{}'", plugin.name())))?;
        }
        if let Some(model) = self.default_model {
            set_default_model(&registry, model);
        }
        for define in self.definitions {
            define(&registry)?;
        }
        let reload = if is_development() {
            Reload::WhenChanged
        } else {
            Reload::Never
        };
        let mut mistakes = Mistakes::default();
        for folder in self.prompts {
            PromptFolder::load(&registry, &folder, reload, &mut mistakes)?;
        }
        mistakes.append(check_names(&registry).await);
        mistakes.into_result()?;
        Ok(Everturn { registry })
    }
}

/// The names of the agents of an application, as returned by [`Everturn::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The agents that servers expose to clients.
    pub served: Vec<String>,
    /// The internal agents, which other agents delegate to and servers do not expose.
    pub internal: Vec<String>,
}

/// Checks that all names used by the agents and prompts of a registry exist.
async fn check(registry: &Registry) -> Result<()> {
    let mut mistakes = check_default_model(registry).await;
    mistakes.append(check_names(registry).await);
    mistakes.append(check_delegates(registry).await);
    mistakes.into_result()
}

/// Returns whether the environment is a development environment.
fn is_development() -> bool {
    ["EVERTURN_ENV", "GENKIT_ENV"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| value == "dev"))
}

impl Everturn {
    /// Returns the settings of a new application.
    pub fn builder() -> EverturnBuilder {
        everturn_core::install_tls_provider();
        EverturnBuilder::default()
    }

    /// Returns the registry, which holds all actions and values of the application by key.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Defines an agent with an inline prompt.
    pub fn agent(&self, name: impl Into<String>) -> AgentBuilder<Value, InlinePrompt> {
        everturn_agent::agent(&self.registry, name)
    }

    /// Defines an agent around a registered prompt, such as a `.prompt` file.
    pub fn prompt_agent(&self, name: impl Into<String>) -> AgentBuilder<Value, NamedPrompt> {
        everturn_agent::prompt_agent(&self.registry, name)
    }

    /// Defines an agent whose turn loop is `function`.
    pub fn custom_agent<S, O, A, F>(
        &self,
        name: impl Into<String>,
        function: F,
    ) -> AgentBuilder<S, Custom<S>, Value, O>
    where
        S: CustomState,
        O: Serialize + JsonSchema + Send + 'static,
        F: Function<(AgentSession<S>,), AgentResult<O>, A>,
    {
        everturn_agent::custom_agent(&self.registry, name, function)
    }

    /// Defines an agent whose turn loop is `function`, as [`everturn_agent::session_flow`] does.
    pub fn session_flow<S, O, A, F>(
        &self,
        name: impl Into<String>,
        function: F,
    ) -> AgentBuilder<S, Custom<S>, Value, O>
    where
        S: CustomState,
        O: Serialize + JsonSchema + Send + 'static,
        F: Function<(AgentSession<S>,), AgentResult<O>, A>,
    {
        everturn_agent::session_flow(&self.registry, name, function)
    }

    /// Checks that the models, tools, middleware and sub-agents used by agents and prompts exist, and that
    /// every agent has a model, or there is a default model.
    ///
    /// [`Everturn::serve`] and servers from [`Everturn::server`] run this check before they listen. A program
    /// that does not serve calls it once its agents are defined; otherwise a wrong name fails the first turn
    /// that uses it.
    ///
    /// ```
    /// use everturn::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let app = Everturn::builder().build().await?;
    /// app.agent("chef").model("opnai/gpt-5-mini").tool("in_seson").define()?;
    ///
    /// let mistakes = app.check().await.unwrap_err();
    /// assert!(mistakes.message().contains("agent 'chef': no model 'opnai/gpt-5-mini' is registered"));
    /// assert!(mistakes.message().contains("agent 'chef': no tool 'in_seson' is registered"));
    /// # Ok(()) }
    /// ```
    ///
    /// The result names the agents that servers expose, and the internal ones, which other agents delegate
    /// to:
    ///
    /// ```
    /// # use everturn::prelude::*;
    /// # use everturn::testkit::EchoModel;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let app = Everturn::builder().model("echo", EchoModel).default_model("echo").build().await?;
    /// app.agent("editor").use_middleware(Delegation::to(["writer"])).define()?;
    /// app.agent("writer").define()?;
    ///
    /// let checked = app.check().await?;
    /// assert_eq!(checked.served, ["editor"]);
    /// assert_eq!(checked.internal, ["writer"]); // unless it is `.public()`
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// One error that lists all mistakes, with file and line for those in `.prompt` files.
    pub async fn check(&self) -> Result<Checked> {
        check(&self.registry).await?;
        let internal = internal_agents(&self.registry);
        let agents = self.registry.of_type(&ActionType::AGENT).into_keys();
        Ok(Checked {
            served: agents.filter(|agent| !internal.contains(agent)).collect(),
            internal: internal.into_iter().collect(),
        })
    }

    /// Polls once for lost background runs of all agents, and takes them over.
    ///
    /// Call this, or [`Everturn::recover_every`], after defining the agents. Accepted work then continues
    /// after the process that accepted it has died.
    pub async fn recover(&self) -> Recovery {
        recover_all(&self.registry).await
    }

    /// Polls for lost background runs immediately and then at every interval, until the guard is stopped or
    /// dropped.
    ///
    /// A lost run continues at most one interval after its lease has expired ([`Heartbeat::expiry`]).
    ///
    /// ```
    /// use std::time::Duration;
    /// use everturn::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let app = Everturn::builder().build().await?;
    /// let recovering = app.recover_every(Duration::from_secs(30));
    /// // ... serve ...
    /// recovering.stop().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// Outside a Tokio runtime, or if the interval is zero.
    ///
    /// [`Heartbeat::expiry`]: everturn_agent::Heartbeat::expiry
    pub fn recover_every(&self, interval: Duration) -> RecoveryLoop {
        recover_every(&self.registry, interval)
    }

    /// Returns a server of the whole application for further configuration: context providers, limits, other
    /// paths.
    #[cfg(feature = "server")]
    pub fn server(&self) -> everturn_server::Server {
        let registry = self.registry.clone();
        everturn_server::Server::new(&self.registry).check_at_start(move || {
            let registry = registry.clone();
            async move { check(&registry).await }
        })
    }

    /// Connects the application to Genkit's developer tools if the environment selects development
    /// (`GENKIT_ENV=dev`, as the tools set it, or `EVERTURN_ENV=dev`); returns `None` otherwise.
    ///
    /// [`Everturn::serve`] does this itself. A program that does not serve calls it after all definitions and
    /// keeps the returned guard.
    ///
    /// # Errors
    /// As [`DevTools::start`](everturn_dev::DevTools::start).
    #[cfg(feature = "dev")]
    pub async fn dev_tools(&self) -> Result<Option<everturn_dev::DevTools>> {
        everturn_dev::DevTools::start(&self.registry).await
    }

    /// Serves every agent and flow over HTTP until the process receives Ctrl-C or `SIGTERM`, then waits for
    /// running calls.
    ///
    /// Also takes over lost background runs, as [`Everturn::recover_every`] does.
    ///
    /// Agents are at `/agents/{name}`, flows at `/flows/{name}`; see [`everturn_server`] for the other
    /// routes. Callers are not identified, so the address must be a loopback address; see
    /// [`Everturn::serve_with`] for servers that other machines reach.
    ///
    /// In development ([`Everturn::dev_tools`]) the application is connected to Genkit's developer tools,
    /// recent traces are at `/dev/traces`, and the studio, a page for using the agents, is at `/`. On a
    /// loopback address every caller may then also label, fork, export and delete sessions.
    ///
    /// # Errors
    /// As [`Everturn::check`]; the operating system's error for the address.
    #[cfg(feature = "server")]
    pub async fn serve(&self, address: impl Into<everturn_server::ListenAddress>) -> Result<()> {
        self.serve_with(address, |server| server).await
    }

    /// Serves like [`Everturn::serve`], with further settings of the server: identification of callers,
    /// limits, protocol adapters.
    ///
    /// ```no_run
    /// use everturn::prelude::*;
    /// use everturn::server::BearerTokens;
    ///
    /// # async fn serve(app: Everturn) -> Result<()> {
    /// let tokens = BearerTokens::new([("ann", "a-long-random-token")]);
    /// app.serve_with("0.0.0.0:8080", |server| server.context(tokens)).await
    /// # }
    /// ```
    ///
    /// In development the server starts with the studio, an in-memory stream log and, on a loopback address,
    /// permission for every caller to change sessions.
    ///
    /// # Errors
    /// As [`Everturn::serve`]; `FAILED_PRECONDITION` if other machines reach the address and the server
    /// neither identifies callers nor [allows everyone](everturn_server::Server::allow_everyone).
    #[cfg(feature = "server")]
    pub async fn serve_with(
        &self,
        address: impl Into<everturn_server::ListenAddress>,
        settings: impl FnOnce(everturn_server::Server) -> everturn_server::Server,
    ) -> Result<()> {
        let address: everturn_server::ListenAddress = address.into();
        let recovering = self.recover_every(RECOVERY_INTERVAL);
        let server = self.server();
        #[cfg(feature = "dev")]
        let tools = self.dev_tools().await?;
        #[cfg(feature = "dev")]
        let server = match &tools {
            Some(tools) => in_development(server, tools, &address),
            None => server,
        };
        let server = settings(server);
        let outcome = server.serve(address).await;
        #[cfg(feature = "dev")]
        if let Some(tools) = tools {
            tools.end().await;
        }
        recovering.stop().await;
        outcome
    }

    /// Returns an MCP server of the application for further configuration: the exposed elements and the
    /// transport.
    #[cfg(feature = "mcp")]
    pub fn mcp_server(&self) -> everturn_mcp::McpServer {
        everturn_mcp::McpServer::new(&self.registry)
    }

    /// Starts a generation without a session.
    pub fn generate(&self) -> Generate {
        Generate::new(&self.registry)
    }

    /// Returns the prompt of that name.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none.
    pub fn prompt(&self, name: &str) -> Result<Prompt> {
        Prompt::lookup(&self.registry, name)
    }

    /// Defines a flow; see [`Registry::define_flow`].
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if a flow of that name exists; `FAILED_PRECONDITION` if it takes a value that was not
    /// [added](EverturnBuilder::with).
    pub fn flow<I, O, A, F>(&self, name: &str, function: F) -> Result<Flow<I, O>>
    where
        I: Payload,
        O: Payload,
        F: Function<(I,), O, A>,
    {
        self.registry.define_flow(name, function)
    }

    /// Defines a flow that streams; see [`Registry::define_streaming_flow`].
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if a flow of that name exists; `FAILED_PRECONDITION` if it takes a value that was not
    /// [added](EverturnBuilder::with).
    pub fn streaming_flow<I, O, S, A, F>(&self, name: &str, function: F) -> Result<StreamingFlow<I, O, S>>
    where
        I: Payload,
        O: Payload,
        S: Payload,
        F: Function<(I, Emitter<S>), O, A>,
    {
        self.registry.define_streaming_flow(name, function)
    }

    /// Defines a bidirectional flow; see [`Registry::define_bidi_flow`].
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if a flow of that name exists; `FAILED_PRECONDITION` if it takes a value that was not
    /// [added](EverturnBuilder::with).
    pub fn bidi_flow<T, I, O, S, A, F>(&self, name: &str, function: F) -> Result<BidiFlow<T, I, O, S>>
    where
        T: Payload + Default,
        I: Payload,
        O: Payload,
        S: Payload,
        F: Function<(T, Inputs<I>, Emitter<S>), O, A>,
    {
        self.registry.define_bidi_flow(name, function)
    }
}

/// Adds the routes for development.
#[cfg(all(feature = "dev", feature = "server"))]
fn in_development(
    server: everturn_server::Server,
    tools: &everturn_dev::DevTools,
    address: &everturn_server::ListenAddress,
) -> everturn_server::Server {
    use crate::ServeTraces as _;

    let server = server.traces(tools.traces());
    #[cfg(feature = "studio")]
    let server = {
        use everturn_core::stream_log::MemoryStreamLog;
        use everturn_server::ArchiveAccess;
        use everturn_studio::{ServeStudio as _, Studio};

        // Only users of this machine can reach a loopback address, so unidentified callers may change
        // sessions.
        let written = address.to_string();
        let is_here = written
            .parse::<std::net::SocketAddr>()
            .map_or(written.starts_with("localhost:"), |address| {
                address.ip().is_loopback()
            });
        let access = if is_here {
            ArchiveAccess::everyone()
        } else {
            ArchiveAccess::none()
        };
        server
            .studio(Studio::new())
            .stream_log(MemoryStreamLog::new())
            .archive(access)
    };
    #[cfg(not(feature = "studio"))]
    let _ = address;
    server
}

impl fmt::Debug for Everturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Everturn")
            .field("registry", &self.registry)
            .finish()
    }
}

impl fmt::Debug for EverturnBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EverturnBuilder")
            .field("default_model", &self.default_model)
            .finish_non_exhaustive()
    }
}
