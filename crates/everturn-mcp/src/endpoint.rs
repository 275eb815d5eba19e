//! Addresses of MCP servers: a program to start, a URL, or any stream of bytes.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use everturn_core::{Error, HandlerResult, Result};
use futures::future::BoxFuture;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, RunningService, serve_client_with_lifecycle};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, RoleClient};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::process::{ChildStderr, Command};

use crate::fault;
use crate::handler::Handler;

/// The environment variables that a child process inherits: enough to find programs and the user's files, and
/// no secrets.
const INHERITED: [&str; 10] = [
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SYSTEMROOT",
    "TEMP",
    "TERM",
    "TMPDIR",
    "USER",
];

/// An MCP server that is a program, connected over its standard input and output.
///
/// The program inherits only the variables for programs, home and temporary files, and the variables set with
/// [`StdioServer::env`]. Its standard error is written to the log.
///
/// ```
/// use everturn_mcp::StdioServer;
///
/// let files = StdioServer::new("npx")
///     .args(["-y", "@modelcontextprotocol/server-filesystem", "/srv/recipes"])
///     .env("LOG_LEVEL", "info");
/// # let _ = files;
/// ```
#[derive(Clone)]
#[must_use]
pub struct StdioServer {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
}

impl StdioServer {
    /// Creates the server from the program's path, or its name in `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let arguments = arguments.into_iter();
        self.arguments
            .extend(arguments.map(|argument| argument.as_ref().to_owned()));
        self
    }

    everturn_core::setters! {
        /// Sets a variable of the program's environment.
        pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
            self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        }

        /// Sets the program's working directory; this process's by default.
        pub fn folder(mut self, folder: impl Into<PathBuf>) { self.folder = Some(folder.into()) }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear();
        let inherited = INHERITED
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(inherited);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }
}

everturn_core::opaque_debug!(StdioServer, program, arguments);

type TokenSource = Arc<dyn Fn() -> BoxFuture<'static, HandlerResult<String>> + Send + Sync>;

/// An MCP server at a URL, connected over streamable HTTP.
///
/// ```
/// use everturn_mcp::HttpServer;
///
/// let search = HttpServer::new("https://search.example/mcp").bearer("a token");
/// # let _ = search;
/// ```
#[derive(Clone)]
#[must_use]
pub struct HttpServer {
    url: String,
    headers: Vec<(String, String)>,
    token: Option<TokenSource>,
    client: Option<reqwest::Client>,
}

impl HttpServer {
    /// Creates the server at a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            token: None,
            client: None,
        }
    }

    /// Sends a bearer token with every request.
    pub fn bearer(self, token: impl Into<String>) -> Self {
        let token = token.into();
        self.token_source(move || std::future::ready(Ok(token.clone())))
    }

    /// Sends a bearer token that a function provides, such as an OAuth access token.
    ///
    /// The function is called when the connection is made, and again when the server has rejected its token:
    /// it should then refresh the token. The rejected request is sent once more.
    pub fn token_source<F, Fut>(mut self, source: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<String>> + Send + 'static,
    {
        self.token = Some(Arc::new(move || Box::pin(source())));
        self
    }

    everturn_core::setters! {
        /// Sends a header with every request.
        pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) {
            self.headers.push((name.into(), value.into()));
        }

        /// Sets the HTTP client, with its proxies, certificates and timeouts.
        pub fn client(mut self, client: reqwest::Client) { self.client = Some(client) }
    }

    async fn config(&self) -> Result<StreamableHttpClientTransportConfig> {
        let mut headers = HashMap::new();
        for (name, value) in &self.headers {
            let parsed = name.parse::<HeaderName>().ok();
            let parsed = parsed.zip(HeaderValue::from_str(value).ok());
            let (name, mut value) = parsed.ok_or_else(|| {
                Error::invalid_argument(format!(
                    "the header '{name}' or its value cannot be sent over HTTP"
                ))
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let mut config =
            StreamableHttpClientTransportConfig::with_uri(self.url.as_str()).custom_headers(headers);
        if let Some(source) = &self.token {
            config = config.auth_header(source().await?);
        }
        Ok(config)
    }
}

everturn_core::conversions! {
    From<&str> for HttpServer: |url| Self::new(url);
    From<String> for HttpServer: |url| Self::new(url);
    From<&str> for StdioServer: |program| Self::new(program);
}

everturn_core::opaque_debug!(HttpServer, url);

/// A stream of bytes in both directions, such as a socket.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {}

pub(crate) type OpenStream = Arc<dyn Fn() -> BoxFuture<'static, Result<Box<dyn ByteStream>>> + Send + Sync>;

/// The address of a server.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Stdio(StdioServer),
    Http(HttpServer),
    Stream(OpenStream),
}

impl Endpoint {
    /// Returns whether a rejected token can be exchanged for another.
    pub(crate) fn has_token(&self) -> bool {
        matches!(self, Self::Http(server) if server.token.is_some())
    }

    /// Connects, in the version of the protocol that the server supports.
    pub(crate) async fn connect(&self, name: &str, handler: Handler) -> Result<Running> {
        let connecting = match self {
            Self::Stdio(server) => {
                let (process, errors) = start(server).map_err(|error| {
                    let program = server.program.display();
                    Error::unavailable(format!("MCP server '{name}': cannot start '{program}': {error}"))
                })?;
                if let Some(errors) = errors {
                    log_errors(name, errors);
                }
                serve(handler, process)
            }
            Self::Http(server) => {
                everturn_core::install_tls_provider();
                let client = server.client.clone().unwrap_or_default();
                let config = server.config().await?;
                serve(
                    handler,
                    StreamableHttpClientTransport::with_client(client, config),
                )
            }
            Self::Stream(open) => serve(handler, open().await?),
        };
        connecting
            .await
            .map_err(|error| fault::not_connected(name, &error))
    }
}

type Running = RunningService<RoleClient, Handler>;

/// Returns a future that connects. It borrows nothing, so that the compiler can prove that it is `Send`.
fn serve<T, E, A>(
    handler: Handler,
    transport: T,
) -> BoxFuture<'static, Result<Running, ClientInitializeError>>
where
    T: IntoTransport<RoleClient, E, A> + Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
    A: 'static,
{
    // The stateless version if the server supports it, else the handshake of earlier versions.
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    Box::pin(serve_client_with_lifecycle(handler, transport, lifecycle))
}

fn start(server: &StdioServer) -> std::io::Result<(TokioChildProcess, Option<ChildStderr>)> {
    TokioChildProcess::builder(server.command())
        .stderr(Stdio::piped())
        .spawn()
}

/// Writes a program's standard error to the log, until it ends.
fn log_errors(name: &str, errors: ChildStderr) {
    let server = name.to_owned();
    tokio::spawn(async move {
        let mut lines = BufReader::new(errors).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            tracing::info!(%server, "{line}");
        }
    });
}
