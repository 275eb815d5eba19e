//! The client: how requests to servers are sent.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Context, Error, HandlerResult, Result};
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;

use crate::Retries;
use crate::headers::Headers;

/// How long an idle connection is kept. The value is below Node's limit, so that a turn, which cannot be
/// repeated, is not sent on a connection that the server is closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// How long connecting to a server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for a takeover of a run without a worker; by default as long as for a run in this
/// process.
const TAKEOVER_PATIENCE: Duration = Duration::from_mins(1);

/// An HTTP client for remote agents and flows, with its headers, limits and retries. Cloning is cheap, and
/// clones share their connections.
///
/// ```
/// use everturn_client::{Client, HeaderMap, RemoteAgent};
/// # async fn fresh_token() -> everturn_core::Result<String> { Ok("t".to_owned()) }
///
/// # fn main() -> everturn_core::Result<()> {
/// let client = Client::builder()
///     .header("x-api-key", "0123")
///     .headers(|_context| async {
///         let mut headers = HeaderMap::new();
///         headers.insert("authorization", format!("Bearer {}", fresh_token().await?).parse()?);
///         Ok(headers)
///     })
///     .build()?;
///
/// let chef: RemoteAgent = client.agent("https://kitchen.example/agents/chef")?;
/// let menu = client.flow::<String, Vec<String>, String>("https://kitchen.example/flows/menu")?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Client(pub(crate) Arc<Settings>);

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) http: reqwest::Client,
    pub(crate) headers: Headers,
    pub(crate) retries: Retries,
    pub(crate) timeout: Duration,
    pub(crate) silence: Duration,
    pub(crate) max_bytes: usize,
    pub(crate) takeover_patience: Duration,
}

impl Client {
    /// Returns a client with the default settings.
    ///
    /// # Errors
    /// `INTERNAL` if TLS cannot be set up on this machine.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns a builder for a client with other settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            http: None,
            headers: Headers::default(),
            retries: Retries::default(),
            timeout: Duration::from_secs(30),
            silence: Duration::from_mins(5),
            max_bytes: 64 * 1024 * 1024,
            takeover_patience: TAKEOVER_PATIENCE,
            problem: None,
        }
    }
}

/// The settings of a [`Client`].
#[must_use = "nothing exists until the client is built"]
pub struct ClientBuilder {
    http: Option<reqwest::Client>,
    headers: Headers,
    retries: Retries,
    timeout: Duration,
    silence: Duration,
    max_bytes: usize,
    takeover_patience: Duration,
    problem: Option<Error>,
}

impl ClientBuilder {
    /// Sends a header with every request. A later header of the same name replaces an earlier one.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Err(problem) = self.headers.insert(name, value) {
            self.problem.get_or_insert(problem);
        }
        self
    }

    /// Calls `provider` for headers before every request, also before reconnecting to a stream, for example
    /// for tokens that expire. The provider receives the context of the turn or call. Its headers replace
    /// fixed headers of the same name.
    pub fn headers<F, Fut>(mut self, provider: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<HeaderMap>> + Send + 'static,
    {
        self.headers.set_provider(provider);
        self
    }

    everturn_core::setters! {
        /// Sends requests with your own HTTP client, for example one with a proxy or certificates.
        ///
        /// The default client follows no redirects, because they could send credentials to another server.
        pub fn http(mut self, http: reqwest::Client) { self.http = Some(http) }

        /// Sets how often requests that may be repeated are retried.
        pub fn retries(mut self, retries: Retries) { self.retries = retries }

        /// Sets how long each attempt to read a snapshot or to abort a run may take; 30 seconds by default.
        ///
        /// The limit of a turn or a flow is the deadline of its [`Context`].
        pub fn timeout(mut self, timeout: Duration) { self.timeout = timeout }

        /// Sets how long a working server may send nothing before the connection counts as lost; five minutes
        /// by default.
        pub fn silence(mut self, silence: Duration) { self.silence = silence }

        /// Sets the largest accepted reply or event of a stream; 64 MiB by default.
        pub fn max_bytes(mut self, max_bytes: usize) { self.max_bytes = max_bytes }

        /// Sets how long [waiting](everturn_agent::AgentTask::wait) for a background run continues after its
        /// lease expired, so that another worker can take over the run; one minute by default. It should be
        /// longer than the interval at which the server's processes poll for lost runs. With zero, an expired
        /// run is reported at once.
        pub fn takeover_patience(mut self, patience: Duration) { self.takeover_patience = patience }
    }

    /// Builds the client.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an invalid header; `INTERNAL` if TLS cannot be set up on this machine.
    pub fn build(self) -> Result<Client> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        everturn_core::install_tls_provider();
        let http = match self.http {
            Some(http) => http,
            None => reqwest::Client::builder()
                .redirect(Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
                .build()
                .map_err(Error::foreign)?,
        };
        Ok(Client(Arc::new(Settings {
            http,
            headers: self.headers,
            retries: self.retries,
            timeout: self.timeout,
            silence: self.silence,
            max_bytes: self.max_bytes,
            takeover_patience: self.takeover_patience,
        })))
    }
}

everturn_core::opaque_debug!(ClientBuilder, headers, retries);
