//! How servers are reached.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Context, Error, HandlerResult, Result};
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;

use crate::headers::Headers;
use crate::{RemoteAgent, RemoteFlow, Retries};

/// How long a connection is kept that nobody uses: less than Node keeps it, so that a turn, which cannot be sent again, is
/// not sent into a connection that is being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// How long it may take to reach a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a run without a worker is waited for: as long as a run in this process is, unless its agent says otherwise.
const TAKEOVER_PATIENCE: Duration = Duration::from_mins(1);

/// How agents and flows elsewhere are reached: with which headers, for how long, and with how much patience. Cloning
/// is cheap; clones share their connections.
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
    /// A client as most programs need it.
    ///
    /// # Errors
    /// `INTERNAL` if this machine cannot do TLS.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Says more about a client.
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

    /// The agent at `url`, whose custom state is an `S`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `url` is not an HTTP address.
    pub fn agent<S>(&self, url: &str) -> Result<RemoteAgent<S>> {
        RemoteAgent::reached_by(self.clone(), url)
    }

    /// The flow at `url`, which turns an `I` into an `O` and streams `C`s.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `url` is not an HTTP address.
    pub fn flow<I, O, C>(&self, url: &str) -> Result<RemoteFlow<I, O, C>> {
        RemoteFlow::reached_by(self.clone(), url)
    }
}

/// What can be said about a client.
#[must_use = "a client exists once it is built"]
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
    /// Sends this header with every request; a later one of the same name replaces an earlier one.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Err(problem) = self.headers.insert(name, value) {
            self.problem.get_or_insert(problem);
        }
        self
    }

    /// Asks `provider` for headers before every request, also before one that goes on with a stream: for tokens that
    /// run out. It is given the context of the turn or call, and what it gives replaces fixed headers of the same name.
    pub fn headers<F, Fut>(mut self, provider: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<HeaderMap>> + Send + 'static,
    {
        self.headers.set_provider(provider);
        self
    }

    /// Sends requests with an HTTP client of one's own, for instance one with a proxy or certificates.
    ///
    /// The one used otherwise follows no redirects, since they could take credentials elsewhere.
    pub fn http(mut self, http: reqwest::Client) -> Self {
        self.http = Some(http);
        self
    }

    /// How often what may be repeated is repeated.
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// How long reading what an agent keeps, or an abort, may take each time it is tried; 30 seconds if not said.
    ///
    /// How long a turn or a flow may take is the deadline of its [`Context`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// For how long a server that works may say nothing before it counts as lost; five minutes if not said.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// The largest reply, or event of a stream, that is taken in; 64 MiB if not said.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// For how long [waiting](everturn_agent::AgentTask::wait) for a background run goes on after its worker went silent,
    /// so that another may take the run over; one minute if not said. It should be longer than the interval at which the
    /// server's processes look for lost runs. With none, the first word of an expired run is the last.
    pub fn takeover_patience(mut self, patience: Duration) -> Self {
        self.takeover_patience = patience;
        self
    }

    /// Makes the client.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what is not a header; `INTERNAL` if this machine cannot do TLS.
    pub fn build(self) -> Result<Client> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
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

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("headers", &self.headers)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
