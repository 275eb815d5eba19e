//! The server: its routes, its callers and its limits.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use axum::routing::{MethodFilter, MethodRouter};
use everturn_agent::{erase_streams_in, observe_turns};
use everturn_core::stream_log::{IntoStreamLog, StreamLog};
use everturn_core::{ActionType, BoxFuture, Error, Exposure, ParsedKey, Registry, Result};
use serde_json::json;
use tower_http::cors::CorsLayer;

use crate::adapter::{MountedAdapter, ProtocolAdapter, handle as handle_adapter};
use crate::archive_access::ArchiveAccess;
use crate::authenticated::authenticate;
use crate::context_provider::ContextProvider;
use crate::correlation::identified;
use crate::error_body::{Refusal, json_response, no_such_path};
use crate::handler::{Mounted, Provider, Shared, handle, stop};
use crate::hosts::{Hosts, Pages};
use crate::logged_calls::LoggedCalls;
use crate::metrics::{Metrics, OtherMetrics};
use crate::openapi::AGENTS;
use crate::operations::operations;
use crate::permits::Permits;
use crate::serve::Bound;
use crate::websocket::{self, Endpoint};
use crate::{Grace, Layout, Limits, ListenAddress, Route, RouteKind, ServerHandle, WebSockets};

/// Serves the agents and flows of a registry over HTTP, as a router to mount or as a whole server.
///
/// ```
/// use everturn_core::{Registry, Result};
/// use everturn_server::Server;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// registry.define_flow("menu", |theme: String| async move { Ok(format!("{theme} soup")) })?;
///
/// let server = Server::new(&registry).bind(("127.0.0.1", 0)).await?;
/// let (address, handle) = (server.address(), server.handle());
/// let serving = tokio::spawn(server.run());
///
/// // curl -H 'content-type: application/json' -d '{"data": "leek"}' http://…/flows/menu
/// # let _ = address;
/// handle.shut_down();
/// serving.await?
/// # }
/// ```
#[must_use = "a server serves once it is bound or its router is mounted"]
pub struct Server {
    registry: Registry,
    /// The routes to mount; `None` for the default layout of everything.
    routes: Option<Vec<Route>>,
    providers: Vec<Provider>,
    limits: Limits,
    grace: Grace,
    exposure: Exposure,
    cors: Option<CorsLayer>,
    operations: bool,
    everyone: bool,
    hosts: Hosts,
    extra: Router,
    authenticated: Router,
    handle: ServerHandle,
    streams: Option<Arc<dyn StreamLog>>,
    websockets: WebSockets,
    adapters: Vec<(String, Arc<dyn ProtocolAdapter>)>,
    archive: ArchiveAccess,
    operators: ArchiveAccess,
    metrics: Vec<OtherMetrics>,
    checks: Vec<StartCheck>,
}

/// A check that runs before the address is bound.
type StartCheck = Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

impl Server {
    /// Returns a server of the agents and flows in the registry, in the default [`Layout`]. Agents that other
    /// agents delegate to are served only if they are [public](everturn_agent::AgentBuilder::public).
    ///
    /// Clients see private error messages in a development environment: `EVERTURN_ENV=dev` or
    /// `GENKIT_ENV=dev`.
    pub fn new(registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            routes: None,
            providers: Vec::new(),
            limits: Limits::default(),
            grace: Grace::default(),
            exposure: exposure_of_environment(),
            cors: None,
            operations: true,
            everyone: false,
            hosts: Hosts::default(),
            extra: Router::new(),
            authenticated: Router::new(),
            handle: ServerHandle::default(),
            streams: None,
            websockets: WebSockets::default(),
            adapters: Vec::new(),
            archive: ArchiveAccess::none(),
            operators: ArchiveAccess::none(),
            metrics: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// Adds a check that runs before the server binds its address, such as a check of the names in prompts.
    /// If it fails, the server does not start. A [`router`](Server::router) that another program serves runs
    /// no checks.
    pub fn check_at_start<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.checks.push(Box::new(move || Box::pin(check())));
        self
    }

    /// Mounts only these routes, which may include routes of internal agents ([`Layout::agent_routes`]). The
    /// default is the [`Layout`] of all agents and flows that are registered when the server is bound or its
    /// router is created.
    pub fn routes(mut self, routes: impl IntoIterator<Item = Route>) -> Self {
        self.routes = Some(routes.into_iter().collect());
        self
    }

    /// Sets the provider that identifies callers; see [`ContextProvider`]. A call without a tenant is
    /// rejected: the provider returns a principal, or declares the caller
    /// [anonymous](crate::Provided::anonymous).
    ///
    /// A server has one provider. Combine several with [`ContextProvider::or`] or [`ContextProvider::and`]; a
    /// server with two providers does not start.
    pub fn context<P: ContextProvider>(mut self, provider: P) -> Self {
        self.providers.push(Provider {
            inner: Arc::new(provider),
            name: std::any::type_name::<P>(),
            reported: Arc::default(),
        });
        self
    }

    everturn_core::setters! {
        /// Serves every caller that reaches the address, also on an address that other machines reach.
        ///
        /// Without a [context provider](Server::context) all callers share all sessions and may read the
        /// metrics. A server without one starts only on a loopback address, unless this method is called. It
        /// has no effect on a server with a provider.
        pub fn allow_everyone(mut self) { self.everyone = true }

        /// Sets the limits on clients.
        pub fn limits(mut self, limits: Limits) { self.limits = limits }

        /// Sets what happens to running calls when the server shuts down.
        pub fn grace(mut self, grace: Grace) { self.grace = grace }

        /// Records streamed calls in a stream log, so that clients can reconnect after a lost connection.
        ///
        #[doc = include_str!("docs/durable_streams.md")]
        pub fn stream_log(mut self, log: impl IntoStreamLog) { self.streams = Some(log.into_stream_log()) }

        /// Sets how a WebSocket is served, on which a client holds conversations with an agent.
        pub fn websockets(mut self, settings: WebSockets) { self.websockets = settings }

        /// Sets which callers may label, fork, copy, export, import and delete sessions; none by default.
        pub fn archive(mut self, access: ArchiveAccess) { self.archive = access }

        /// Sets which callers may read `/metrics`, list the tenants of a store, delete all data of a tenant,
        /// and apply retention rules to all tenants; none by default.
        ///
        /// Without a [context provider](Server::context) every caller may read `/metrics`.
        ///
        /// ```
        /// use everturn_core::Registry;
        /// use everturn_server::{ArchiveAccess, BearerTokens, Server};
        ///
        /// let tokens = BearerTokens::new([("olga", "a-long-random-token")]).with_role("olga", "operator");
        /// let server = Server::new(&Registry::new())
        ///     .context(tokens)
        ///     .operators(ArchiveAccess::role("operator"));
        /// // curl -H 'authorization: Bearer …' -d '{"data": {"principal": "alice"}}' \
        /// //   …/agents/desk/deleteTenant
        /// # let _ = server;
        /// ```
        pub fn operators(mut self, access: ArchiveAccess) { self.operators = access }

        /// Sets how much of an error clients see.
        pub fn exposure(mut self, exposure: Exposure) { self.exposure = exposure }

        /// Sets which pages of other origins may call.
        pub fn cors(mut self, cors: CorsLayer) { self.cors = Some(cors) }

        /// Leaves out `GET /agents`, `/openapi.json`, `/healthz`, `/readyz` and `/metrics`.
        pub fn without_operations(mut self) { self.operations = false }

        /// Adds the metrics of another part of the program, such as a store, to `/metrics`. `text` is called
        /// for every request and returns lines in the text format of Prometheus.
        pub fn metrics_of(mut self, text: impl Fn() -> String + Send + Sync + 'static) {
            self.metrics.push(Arc::new(text));
        }
    }

    /// Adds host names that the server answers to, such as `kitchen.example`, or `kitchen.example:8080` for
    /// one port alone.
    ///
    /// A server that is bound to a loopback address accepts only loopback names (`localhost`, `*.localhost`,
    /// `127.0.0.1`, `[::1]`) and these names. Otherwise a foreign page whose name resolves to this machine
    /// could use it. If a proxy forwards the `Host` of its clients, add the proxy's name here. Servers on
    /// other addresses, and routers, accept every name until some are given.
    ///
    /// A server that checks names also rejects requests that a browser makes for a page of another origin,
    /// unless the page's host is among these names, or [`Server::cors`] or [`WebSockets::origin`] allows the
    /// page.
    pub fn allowed_hosts<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        for name in names {
            self.hosts.allow(name.as_ref());
        }
        self
    }

    everturn_core::setters! {
        /// Accepts every host name and pages of every origin, also on a loopback address.
        pub fn any_host(mut self) { self.hosts.allow_any() }

        /// Adds application routes. Every caller may use them; see [`Server::merge_authenticated`].
        pub fn merge(mut self, router: Router) { self.extra = self.extra.merge(router) }

        /// Adds application routes whose callers are identified by the [context providers](Server::context),
        /// and counted, as on every other route. A request that a provider rejects does not reach them.
        ///
        /// Handlers take the caller, and values of the application, as [`FromCall`](crate::FromCall)
        /// arguments. They run in the caller's context: an agent that a handler calls sees the sessions of
        /// the caller's tenant.
        pub fn merge_authenticated(mut self, router: Router) {
            self.authenticated = self.authenticated.merge(router);
        }

        /// Serves another protocol at a path. Callers are identified and limited as on every other route.
        ///
        /// The path must not be a route's path. It may have parameters: `/files/{*path}` matches all paths
        /// below `/files`.
        pub fn adapter(mut self, path: impl Into<String>, adapter: impl ProtocolAdapter) {
            self.adapters.push((path.into(), Arc::new(adapter)));
        }
    }

    /// Returns the registry whose agents and flows are served.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns a handle that shuts the server down.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Returns the routes as an axum router, to be nested or merged into another one.
    ///
    /// The router handles only its own paths. The program that serves it is responsible for the rest: the
    /// grace period, limits on the heads of requests, responses for other paths, and an address that only
    /// allowed callers reach if there is no [context provider](Server::context).
    ///
    /// # Errors
    /// `NOT_FOUND` if a route's action is not registered, `ALREADY_EXISTS` if two routes are the same,
    /// `INVALID_ARGUMENT` for an invalid path or host name, or for more than one context provider.
    pub fn router(&self) -> Result<Router> {
        Ok(self
            .guarding()
            .guard(self.unguarded_router()?, None, self.exposure))
    }

    /// Returns the accepted host names and pages.
    fn guarding(&self) -> Hosts {
        self.hosts.with_pages(match &self.cors {
            Some(_) => Pages::AsCorsSays,
            None => Pages::Of(self.websockets.origins().to_vec()),
        })
    }

    /// Returns the routes, for every host name.
    fn unguarded_router(&self) -> Result<Router> {
        self.hosts.check()?;
        let metrics = Metrics::new(&self.metrics);
        let turns = metrics.turns();
        observe_turns(&self.registry, &turns);
        let shared = Arc::new(Shared {
            provider: self.provider()?,
            limits: self.limits.clone(),
            permits: Permits::new(&self.limits),
            exposure: self.exposure,
            handle: self.handle.clone(),
            logged_calls: self.logged_calls(),
            archive: self.archive.clone(),
            operators: self.operators.clone(),
            _turns: turns,
            registry: self.registry.clone(),
        });
        // Collected by path first, because axum panics on a second route for one path and method.
        let mut paths: BTreeMap<String, Methods> = BTreeMap::new();
        let mut mounted = Vec::new();
        let given = self.mounted_routes();
        for route in &given {
            let action = self.action(route)?;
            // Two routes may share a path with different methods: a turn is a POST and its stop a DELETE.
            let methods = paths.entry(checked(&route.path)?.to_owned()).or_default();
            let filter = MethodFilter::try_from(route.method.clone()).map_err(|_| {
                Error::invalid_argument(format!("a route cannot answer to the method {}", route.method))
            })?;
            let this = Arc::new(Mounted {
                route: route.clone(),
                action,
                metrics: metrics.of(route),
                shared: Arc::clone(&shared),
            });
            mounted.push(Arc::clone(&this));
            let handler = match route.kind {
                RouteKind::Stop => axum::routing::on(filter, stop).with_state(this),
                RouteKind::Conversation => {
                    axum::routing::on(filter, websocket::converse).with_state(self.endpoint(this, &given))
                }
                _ => axum::routing::on(filter, handle).with_state(this),
            };
            methods.add(route.method.as_str(), &route.path, handler)?;
        }
        if self.operations {
            for (path, handler) in operations(&mounted, &shared, &metrics) {
                let methods = paths.entry(path.to_owned()).or_default();
                // An agent may have the path of the list of agents.
                if path != AGENTS || !methods.answers("GET") {
                    methods.add("GET", path, handler)?;
                }
            }
        }
        let exposure = self.exposure;
        // Paths are literal. Without this, a colon or a brace in a name would be read as a parameter of axum
        // 0.7.
        let mut router = Router::new().without_v07_checks();
        let agents = Arc::new(agent_paths(&given));
        for (path, adapter) in &self.adapters {
            let mounted = Arc::new(MountedAdapter {
                adapter: Arc::clone(adapter),
                agents: Arc::clone(&agents),
                metrics: metrics.of(&Route::post(path, "")),
                shared: Arc::clone(&shared),
            });
            // An adapter handles every method of its path.
            if paths.contains_key(checked_pattern(path)?) {
                return Err(Error::already_exists(format!(
                    "a route and an adapter are at {path}; give one of them another path"
                )));
            }
            router = router.route(path, axum::routing::any(handle_adapter).with_state(mounted));
        }
        for (path, methods) in paths {
            router = router.route(&path, methods.finish(exposure));
        }
        if self.authenticated.has_routes() {
            let layer = axum::middleware::from_fn_with_state(shared, authenticate);
            router = router.merge(self.authenticated.clone().route_layer(layer));
        }
        let router = router.layer(axum::middleware::from_fn(identified));
        Ok(match &self.cors {
            Some(cors) => router.layer(cors.clone()),
            None => router,
        })
    }

    /// Returns the abort action of an agent's WebSocket, which is offered if abort has a route.
    fn endpoint(&self, mounted: Arc<Mounted>, routes: &[Route]) -> Arc<Endpoint> {
        let name = ParsedKey::parse(&mounted.route.key).map_or("", |key| key.name);
        let key = ActionType::AGENT_ABORT.key(name);
        let is_offered = routes.iter().any(|route| route.key == key);
        Arc::new(Endpoint {
            abort: self.registry.get(&key).filter(|_| is_offered),
            settings: self.websockets.clone(),
            mounted,
        })
    }

    fn provider(&self) -> Result<Option<Provider>> {
        match self.providers.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only.clone())),
            several => Err(Error::invalid_argument(format!(
                "the server has {} context providers; combine them into one, as alternatives with \
                 `first.or(second)` or in sequence with `first.and(second)`",
                several.len()
            ))),
        }
    }

    /// Fails with `FAILED_PRECONDITION` if other machines could call without identification, and the program
    /// does not allow it.
    fn check_callers(&self, address: SocketAddr) -> Result<()> {
        let is_private = address.ip().to_canonical().is_loopback();
        if is_private || self.everyone || !self.providers.is_empty() {
            return Ok(());
        }
        Err(Error::failed_precondition(format!(
            "everybody who reaches {address} could call all agents and read all sessions: identify callers with \
             `Server::context`, or allow everything to everybody with `Server::allow_everyone`"
        )))
    }

    fn logged_calls(&self) -> Option<LoggedCalls> {
        let log = Arc::clone(self.streams.as_ref()?);
        // Data that is deleted from an agent's archive is erased from the log too.
        erase_streams_in(&self.registry, &log);
        Some(LoggedCalls::new(log, &self.handle))
    }

    /// Returns the routes to mount: the given ones and, with a stream log, one per streaming route that stops
    /// its calls.
    pub fn mounted_routes(&self) -> Vec<Route> {
        let of_registry = || Layout::default().routes(&self.registry);
        let given = self.routes.clone().unwrap_or_else(of_registry);
        let mut routes = given.clone();
        if !self.archive.is_offered() {
            routes.retain(|route| route.kind != RouteKind::Archive);
        }
        if !self.operators.is_offered() {
            routes.retain(|route| route.kind != RouteKind::Operator);
        }
        if self.streams.is_some() {
            let is_streamed = |route: &&Route| matches!(route.kind, RouteKind::Agent | RouteKind::Flow);
            let streamed = given.iter().filter(is_streamed);
            let stops = streamed.map(|route| Route::stop(&route.path, &route.key));
            routes.extend(stops.filter(|stop| !given.contains(stop)));
        }
        routes
    }

    fn action(&self, route: &Route) -> Result<Arc<dyn everturn_core::DynAction>> {
        self.registry.get(&route.key).ok_or_else(|| {
            Error::not_found(format!(
                "the route {} is for '{}', which is not registered",
                route.path, route.key
            ))
        })
    }

    /// Binds the server to an address; port 0 binds any free port.
    ///
    /// # Errors
    /// The error of a [check](Server::check_at_start); as [`Server::router`]; the operating system's error if
    /// the address cannot be bound; `FAILED_PRECONDITION` if other machines reach the address and the server
    /// has neither a [context provider](Server::context) nor [allows everyone](Server::allow_everyone).
    pub async fn bind(self, address: impl Into<ListenAddress>) -> Result<Bound> {
        for check in &self.checks {
            check().await?;
        }
        let (exposure, hosts) = (self.exposure, self.guarding());
        let router = self.unguarded_router()?.merge(self.extra.clone());
        let router = router.fallback(async |uri: Uri| not_found(&uri));
        let listener = address.into().listen().await?;
        let address = listener.local_addr()?;
        self.check_callers(address)?;
        let router = hosts.guard(router, Some(address), exposure);
        Bound::new(listener, router, self.limits, self.grace, self.handle)
    }

    /// Serves at an address until the process gets Ctrl-C or `SIGTERM`, or until [`ServerHandle::shut_down`].
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub async fn serve(self, address: impl Into<ListenAddress>) -> Result<()> {
        let server = self.bind(address).await?;
        tracing::info!(address = %server.address(), "serving");
        server.run_until_shutdown().await
    }
}

/// Answers a request for a path without a route.
fn not_found(uri: &Uri) -> Response<Body> {
    if uri.path() != "/" {
        return no_such_path();
    }
    let message = "There is no page here. `Everturn::serve` serves the studio, a page to talk to agents, at this path if the \
                   environment has EVERTURN_ENV=dev and the program the feature `studio`; other servers with \
                   `Server::studio`. The agents are listed at /agents.";
    json_response(StatusCode::NOT_FOUND, &json!({ "message": message }))
}

/// Returns the paths of the agents that have a route.
fn agent_paths(routes: &[Route]) -> BTreeMap<String, String> {
    let agents = routes.iter().filter(|route| route.kind == RouteKind::Agent);
    agents
        .filter_map(|route| Some((ParsedKey::parse(&route.key)?.name.to_owned(), route.path.clone())))
        .collect()
}

/// Returns the default exposure of errors: full in a development environment.
fn exposure_of_environment() -> Exposure {
    let is_development = ["EVERTURN_ENV", "GENKIT_ENV"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| value == "dev"));
    if is_development {
        Exposure::Full
    } else {
        Exposure::Public
    }
}

/// The methods of one path.
#[derive(Default)]
struct Methods {
    names: Vec<String>,
    router: MethodRouter,
}

impl Methods {
    fn answers(&self, method: &str) -> bool {
        self.names.iter().any(|name| name == method)
    }

    fn add(&mut self, method: &str, path: &str, handler: MethodRouter) -> Result<()> {
        if self.answers(method) {
            return Err(Error::already_exists(format!(
                "two routes answer {method} {path}; give one of them another path"
            )));
        }
        self.names.push(method.to_owned());
        if method == "GET" {
            // A path that answers GET answers HEAD too.
            self.names.push("HEAD".to_owned());
        }
        self.router = std::mem::take(&mut self.router).merge(handler);
        Ok(())
    }

    /// Returns the path's handlers, with an answer for all other methods.
    fn finish(self, exposure: Exposure) -> MethodRouter {
        let allowed = self.names.join(", ");
        let message = format!("this path allows {allowed}");
        let error = Error::unimplemented(message);
        let allowed = HeaderValue::from_str(&allowed).expect("methods are tokens");
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error).with_header(header::ALLOW, allowed);
        self.router.fallback(move || {
            let response = refusal.respond(exposure);
            async move { response }
        })
    }
}

/// Returns a path that can be mounted as it is.
fn checked(path: &str) -> Result<&str> {
    if path.contains(['{', '}']) {
        let message = format!("the path '{path}' must not contain '{{' or '}}': routes have no parameters");
        return Err(Error::invalid_argument(message));
    }
    checked_pattern(path)
}

/// Returns a path that can be mounted, with its parameters.
fn checked_pattern(path: &str) -> Result<&str> {
    let fault = if !path.starts_with('/') {
        "must begin with a slash"
    } else if path.contains(['?', '#']) {
        "must not contain '?' or '#'"
    } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        "must be percent-encoded"
    } else {
        return Ok(path);
    };
    Err(Error::invalid_argument(format!("the path '{path}' {fault}")))
}

everturn_core::opaque_debug!(Server, limits);
