//! The connection of a program to the developer tools.

use std::path::PathBuf;
use std::sync::Arc;

use everturn_core::{ListeningToSpans, Registry, Result, listen_to_spans};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::exporter::{Exporter, LogLayer};
use crate::reflection_http::{Api, ReflectionServer};
use crate::reflection_socket::ReflectionSocket;
use crate::runs::Runs;
use crate::runtime_file::{RuntimeFile, project_root};
use crate::{TraceLog, wire};

/// A program's connection to Genkit's developer tools, that is, their command line and Dev UI, and a log of
/// recent traces.
///
/// ```no_run
/// use everturn_core::{Registry, Result};
/// use everturn_dev::DevTools;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// registry.define_flow("hello", |name: String| async move { Ok(format!("Hello, {name}!")) })?;
///
/// // Everything is defined by now: the tools list actions as soon as they see the program.
/// if let Some(tools) = DevTools::start(&registry).await? {
///     tools.run_until_shutdown().await;
/// }
/// # Ok(()) }
/// ```
pub struct DevTools {
    exporter: Exporter,
    traces: TraceLog,
    runs: Runs,
    over: CancellationToken,
    /// The URL of the reflection API; `None` if the program connects as a client.
    url: Option<String>,
    _listening: [ListeningToSpans; 2],
    tasks: JoinSet<()>,
}

impl DevTools {
    /// Connects the program to the tools if the environment selects development (`GENKIT_ENV=dev` or
    /// `EVERTURN_ENV=dev`). Otherwise nothing is started, and the result is `None`.
    ///
    /// Call this after everything that the tools should show has been defined. If `tracing` has no subscriber
    /// yet, this installs one that sends log lines to the tools. A program with its own subscriber adds
    /// [`DevTools::log_layer`] to it.
    ///
    /// # Errors
    /// `UNAVAILABLE` if no port is free or the runtime file cannot be written.
    pub async fn start(registry: &Registry) -> Result<Option<Self>> {
        let environment = Environment::of_process();
        if !environment.development {
            return Ok(None);
        }
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        let tools = Self::start_in(registry, environment, folder).await?;
        // An existing subscriber stays installed.
        let _ = tracing_subscriber::registry().with(tools.log_layer()).try_init();
        Ok(Some(tools))
    }

    /// Connects the program to the tools with an explicit environment and folder.
    ///
    /// # Errors
    /// As [`DevTools::start`].
    pub async fn start_in(registry: &Registry, environment: Environment, folder: PathBuf) -> Result<Self> {
        let (exporter, posting) = Exporter::new(environment.telemetry_server, environment.realtime);
        let traces = TraceLog::default();
        let mut tools = Self {
            runs: Runs::new(registry, exporter.clone()),
            _listening: [
                listen_to_spans(Arc::new(exporter.clone())),
                listen_to_spans(Arc::new(traces.clone())),
            ],
            exporter,
            traces,
            over: CancellationToken::new(),
            url: None,
            tasks: JoinSet::new(),
        };
        tools.tasks.spawn(posting);
        let pid = std::process::id();
        let name = program_name();
        if let Some(server) = environment.socket_server {
            let socket = ReflectionSocket {
                server,
                id: environment.runtime_id.unwrap_or_else(|| pid.to_string()),
                name,
                runs: tools.runs.clone(),
            };
            tools.tasks.spawn(socket.serve());
            return Ok(tools);
        }

        let host = environment.host.unwrap_or_else(|| "127.0.0.1".to_owned());
        let server = ReflectionServer::bind(&host, environment.port).await?;
        let port = server.address.port();
        let own_id = format!("{pid}-{port}");
        let id = environment.runtime_id.unwrap_or_else(|| own_id.clone());
        let shown = if server.address.ip().is_unspecified() || server.address.ip().is_loopback() {
            "localhost"
        } else {
            &host
        };
        let url = format!("http://{shown}:{port}");
        let info = json!({
            "id": id,
            "pid": pid,
            "name": name,
            "reflectionServerUrl": url,
            "timestamp": jiff::Timestamp::now().to_string(),
            "genkitVersion": wire::VERSION,
            // With a number above 1, every command of the tools exits.
            "reflectionApiSpecVersion": 1,
        });
        let api = Api {
            runs: tools.runs.clone(),
            traces: tools.traces.clone(),
            ids: [id, own_id].into(),
            host: host.into(),
            quit: tools.over.clone(),
        };
        let over = tools.over.clone();
        tools.tasks.spawn(server.serve(api, over.clone()));
        let file = RuntimeFile::write(&project_root(&folder), pid, port, &info)?;
        tools.tasks.spawn(async move {
            over.cancelled().await;
            drop(file);
        });
        tools.url = Some(url);
        Ok(tools)
    }

    /// Returns the address of the reflection API, if the program serves it.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Returns the log of recent traces.
    pub fn traces(&self) -> &TraceLog {
        &self.traces
    }

    /// Returns a layer that sends log lines to the tools.
    pub fn log_layer(&self) -> LogLayer {
        LogLayer(self.exporter.clone())
    }

    /// Returns the number of spans and log lines dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.exporter.dropped()
    }

    /// Waits until the process receives Ctrl-C or `SIGTERM`, then [ends](DevTools::end) the connection.
    pub async fn run_until_shutdown(self) {
        shutdown().await;
        self.end().await;
    }

    /// Cancels the tools' running actions, sends the last spans and removes the program from the tools' list.
    pub async fn end(mut self) {
        self.runs.end().await;
        self.exporter.flush().await;
        self.over.cancel();
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        let dropped = self.dropped();
        if dropped > 0 {
            eprintln!("everturn: {dropped} spans and log lines were not sent to the developer tools");
        }
    }
}

/// The displayed name of the program: its file name.
fn program_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_ref().and_then(|program| program.file_stem()?.to_str());
    name.unwrap_or("everturn").to_owned()
}

/// Waits for Ctrl-C or `SIGTERM`.
async fn shutdown() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without signal handlers, a signal ends the process.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

everturn_core::opaque_debug!(DevTools, url);

/// The configuration of the developer tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Whether development is enabled: `GENKIT_ENV=dev` or `EVERTURN_ENV=dev`.
    pub development: bool,
    /// The tools' WebSocket server (`GENKIT_REFLECTION_V2_SERVER`). Without it, the program serves HTTP.
    pub socket_server: Option<String>,
    /// The trace server (`GENKIT_TELEMETRY_SERVER`). Without it, the tools send its address when they
    /// connect.
    pub telemetry_server: Option<String>,
    /// Whether spans are also sent when they begin (`GENKIT_ENABLE_REALTIME_TELEMETRY=true`).
    pub realtime: bool,
    /// The id of the program in the tools (`GENKIT_RUNTIME_ID`).
    pub runtime_id: Option<String>,
    /// The port of the HTTP server (`GENKIT_REFLECTION_PORT`); by default the first free one from 3100.
    pub port: Option<u16>,
    /// The address of the HTTP server (`GENKIT_REFLECTION_HOST`); by default 127.0.0.1.
    pub host: Option<String>,
}

impl Environment {
    /// Reads the variables of this process.
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads variables from `variable`. An empty one counts as absent.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is = |name: &str, expected: &str| variable(name).is_some_and(|value| value == expected);
        Self {
            development: is("GENKIT_ENV", "dev") || is("EVERTURN_ENV", "dev"),
            socket_server: variable("GENKIT_REFLECTION_V2_SERVER"),
            telemetry_server: variable("GENKIT_TELEMETRY_SERVER"),
            realtime: is("GENKIT_ENABLE_REALTIME_TELEMETRY", "true"),
            runtime_id: variable("GENKIT_RUNTIME_ID"),
            port: variable("GENKIT_REFLECTION_PORT").and_then(|port| port.parse().ok()),
            host: variable("GENKIT_REFLECTION_HOST"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_switched_on_by_default() {
        assert_eq!(Environment::read(|_| None), Environment::default());
    }

    #[test]
    fn both_names_of_the_environment_mean_development() {
        for name in ["GENKIT_ENV", "EVERTURN_ENV"] {
            let environment = Environment::read(|asked| (asked == name).then(|| "dev".to_owned()));

            assert!(environment.development, "{name}");
        }
    }
}
