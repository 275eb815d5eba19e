//! A server: what is mounted, for whom, within which limits.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::routing::{MethodFilter, MethodRouter};
use everturn_core::stream_log::StreamLog;
use everturn_core::{ActionType, Error, Exposure, ParsedKey, Registry, Result};
use tokio::net::{TcpListener, ToSocketAddrs};
use tower_http::cors::CorsLayer;

use crate::context_provider::ContextProvider;
use crate::door::{Door, Opened, enter};
use crate::durable::{self, Durable};
use crate::error_body::Refusal;
use crate::handler::{Mounted, Shared, handle};
use crate::metrics::Metrics;
use crate::operations::operations;
use crate::permits::Permits;
use crate::serve::Bound;
use crate::websocket::{self, Endpoint};
use crate::{Grace, Layout, Limits, Route, RouteKind, ServerHandle, WebSockets};

/// The agents and flows of a registry over HTTP: as a router to mount, or as a whole server.
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
    routes: Vec<Route>,
    providers: Vec<Arc<dyn ContextProvider>>,
    limits: Limits,
    grace: Grace,
    exposure: Exposure,
    cors: Option<CorsLayer>,
    operations: bool,
    extra: Router,
    handle: ServerHandle,
    streams: Option<Arc<dyn StreamLog>>,
    websockets: WebSockets,
    doors: Vec<(String, Arc<dyn Door>)>,
}

impl Server {
    /// A server of everything that is in the registry now, in the default [`Layout`].
    ///
    /// Private error messages are shown if the environment says that somebody is working on the program:
    /// `EVERTURN_ENV=dev` or `GENKIT_ENV=dev`.
    pub fn new(registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            routes: Layout::default().routes(registry),
            providers: Vec::new(),
            limits: Limits::default(),
            grace: Grace::default(),
            exposure: exposure_of_environment(),
            cors: None,
            operations: true,
            extra: Router::new(),
            handle: ServerHandle::default(),
            streams: None,
            websockets: WebSockets::default(),
            doors: Vec::new(),
        }
    }

    /// Mounts these routes and no others.
    pub fn routes(mut self, routes: impl IntoIterator<Item = Route>) -> Self {
        self.routes = routes.into_iter().collect();
        self
    }

    /// Asks a provider who calls; see [`ContextProvider`]. Several are asked in the order in which they were added.
    pub fn context(mut self, provider: impl ContextProvider) -> Self {
        self.providers.push(Arc::new(provider));
        self
    }

    /// What clients may ask for.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What happens to calls under way when the server ends.
    pub fn grace(mut self, grace: Grace) -> Self {
        self.grace = grace;
        self
    }

    /// Keeps streamed calls in a log, so that clients may lose their connection and come back.
    ///
    #[doc = include_str!("docs/durable_streams.md")]
    pub fn stream_log(mut self, log: impl StreamLog) -> Self {
        self.streams = Some(Arc::new(log));
        self
    }

    /// How a WebSocket is served, on which conversations are had with an agent.
    pub fn websockets(mut self, settings: WebSockets) -> Self {
        self.websockets = settings;
        self
    }

    /// How much of an error clients are told.
    pub fn exposure(mut self, exposure: Exposure) -> Self {
        self.exposure = exposure;
        self
    }

    /// Lets pages of other origins call.
    pub fn cors(mut self, cors: CorsLayer) -> Self {
        self.cors = Some(cors);
        self
    }

    /// Leaves out `/openapi.json`, `/healthz`, `/readyz` and `/metrics`.
    pub fn without_operations(mut self) -> Self {
        self.operations = false;
        self
    }

    /// Serves routes of one's own beside these.
    pub fn merge(mut self, router: Router) -> Self {
        self.extra = self.extra.merge(router);
        self
    }

    /// Serves another protocol at a path: callers are identified as everywhere else, and the same limits hold.
    ///
    /// The path must not be a route's.
    pub fn door(mut self, path: impl Into<String>, door: impl Door) -> Self {
        self.doors.push((path.into(), Arc::new(door)));
        self
    }

    /// Ends the server from elsewhere.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// The routes as an axum router, to be nested or merged into another one.
    ///
    /// It answers for its own paths only. What a whole server does beyond that (the grace period, limits on the heads
    /// of requests, an answer for paths that do not exist) is up to whoever serves it.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no action under a route's key, `ALREADY_EXISTS` if two routes are the same,
    /// `INVALID_ARGUMENT` for a path that cannot be one.
    pub fn router(&self) -> Result<Router> {
        let metrics = Metrics::new();
        let shared = Arc::new(Shared {
            providers: self.providers.clone(),
            limits: self.limits.clone(),
            permits: Permits::new(self.limits.calls_per_principal),
            exposure: self.exposure,
            handle: self.handle.clone(),
            durable: self.durable(),
        });
        let mut paths: BTreeMap<String, Methods> = BTreeMap::new();
        let mut mounted = Vec::new();
        for route in &self.mounted_routes() {
            let action = self.action(route)?;
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
                RouteKind::Stop => axum::routing::on(filter, durable::stop).with_state(this),
                RouteKind::Conversation => {
                    axum::routing::on(filter, websocket::converse).with_state(self.endpoint(this))
                }
                _ => axum::routing::on(filter, handle).with_state(this),
            };
            methods.add(route.method.as_str(), &route.path, handler)?;
        }
        if self.operations {
            for (path, handler) in operations(&mounted, &shared, &metrics) {
                paths
                    .entry(path.to_owned())
                    .or_default()
                    .add("GET", path, handler)?;
            }
        }
        let exposure = self.exposure;
        let mut router = Router::new().without_v07_checks();
        for (path, door) in &self.doors {
            let opened = Arc::new(Opened {
                door: Arc::clone(door),
                metrics: metrics.of(&Route::post(path, "")),
                shared: Arc::clone(&shared),
            });
            if paths.contains_key(checked(path)?) {
                return Err(Error::already_exists(format!(
                    "a route and a door are at {path}; give one of them another path"
                )));
            }
            router = router.route(path, axum::routing::any(enter).with_state(opened));
        }
        for (path, methods) in paths {
            router = router.route(&path, methods.finish(exposure));
        }
        Ok(match &self.cors {
            Some(cors) => router.layer(cors.clone()),
            None => router,
        })
    }

    /// Aborting is part of a conversation if it has a route of its own.
    fn endpoint(&self, mounted: Arc<Mounted>) -> Arc<Endpoint> {
        let name = ParsedKey::parse(&mounted.route.key).map_or("", |key| key.name);
        let key = ActionType::AGENT_ABORT.key(name);
        let is_offered = self.routes.iter().any(|route| route.key == key);
        Arc::new(Endpoint {
            abort: self.registry.get(&key).filter(|_| is_offered),
            settings: self.websockets.clone(),
            mounted,
        })
    }

    fn durable(&self) -> Option<Durable> {
        let log = Arc::clone(self.streams.as_ref()?);
        let tasks = self.handle.tasks().clone();
        Some(Durable::new(log, tasks, self.handle.cancelling()))
    }

    /// What is mounted: the routes given, and with a stream log one to stop each that streams.
    pub fn mounted_routes(&self) -> Vec<Route> {
        let mut routes = self.routes.clone();
        if self.streams.is_some() {
            let is_streamed = |route: &&Route| matches!(route.kind, RouteKind::Agent | RouteKind::Flow);
            let streamed = self.routes.iter().filter(is_streamed);
            let stops = streamed.map(|route| Route::stop(&route.path, &route.key));
            routes.extend(stops.filter(|stop| !self.routes.contains(stop)));
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

    /// Takes an address to listen on; port 0 takes any that is free.
    ///
    /// # Errors
    /// As [`Server::router`]; what the operating system says about the address.
    pub async fn bind(self, address: impl ToSocketAddrs) -> Result<Bound> {
        let exposure = self.exposure;
        let router = self.router()?.merge(self.extra);
        let router = router.fallback(move || async move { Refusal::no_such_path().respond(exposure) });
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Error::from(error).context("the address cannot be listened on"))?;
        Bound::new(listener, router, self.limits, self.grace, self.handle)
    }

    /// Serves at an address until the process is told to end (Ctrl-C or `SIGTERM`) or [`Server::handle`] says so.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub async fn serve(self, address: impl Into<SocketAddr>) -> Result<()> {
        let server = self.bind(address.into()).await?;
        tracing::info!(address = %server.address(), "serving");
        server.run_until_told().await
    }
}

/// Errors are shown whole to whoever works on the program.
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
    fn add(&mut self, method: &str, path: &str, handler: MethodRouter) -> Result<()> {
        if self.names.iter().any(|name| name == method) {
            return Err(Error::already_exists(format!(
                "two routes answer {method} {path}; give one of them another path"
            )));
        }
        self.names.push(method.to_owned());
        if method == "GET" {
            // Whoever answers GET answers HEAD.
            self.names.push("HEAD".to_owned());
        }
        self.router = std::mem::take(&mut self.router).merge(handler);
        Ok(())
    }

    /// The path with an answer for all other methods.
    fn finish(self, exposure: Exposure) -> MethodRouter {
        let allowed = self.names.join(", ");
        let message = format!("this path answers to {allowed}");
        let error = Error::unimplemented(message);
        let allowed = HeaderValue::from_str(&allowed).expect("methods are tokens");
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error).with_header(header::ALLOW, allowed);
        self.router.fallback(move || {
            let response = refusal.respond(exposure);
            async move { response }
        })
    }
}

/// A path that can be mounted as it is.
fn checked(path: &str) -> Result<&str> {
    let fault = if !path.starts_with('/') {
        "must begin with a slash"
    } else if path.contains(['{', '}', '?', '#']) {
        "must not contain '{', '}', '?' or '#': routes have no parameters"
    } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        "must be percent-encoded"
    } else {
        return Ok(path);
    };
    Err(Error::invalid_argument(format!("the path '{path}' {fault}")))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("routes", &self.routes)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
