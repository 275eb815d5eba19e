//! Serving the agents until shutdown.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use everturn::core::{Exposure, Status, listen_to_spans};
use everturn::dev::TraceLog;
use everturn::prelude::{Everturn, ServeAgui, ServeOpenAi, ServeStudio, Studio};
use everturn::server::{ArchiveAccess, BearerTokens, Bound};
use everturn::sqlite::SqliteStreamLog;
use everturn::{Result, ServeTraces};

use crate::arguments::Arguments;
use crate::database::Database;
use crate::greeting::{Greeting, Requests};
use crate::model::Choice;
use crate::{agents, first_session};

/// The default address.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// The pause before each word, so that streaming is visible.
const PACE: Duration = Duration::from_millis(30);

/// How often to poll for background runs whose process died.
const RECOVERY: Duration = Duration::from_secs(2);

/// Serves at an address; by default at the default one, or at any free port if that is taken.
pub(crate) async fn serve(arguments: Arguments) -> Result<()> {
    let Arguments {
        addr,
        database,
        model,
        open,
        curl,
        token,
        allow_everyone,
        ..
    } = arguments;
    if curl {
        let requests = Requests::new(addr.unwrap_or(ADDRESS), token.as_deref());
        return Ok(write!(std::io::stdout(), "{requests}")?);
    }
    let model = Choice::make(model).await?;
    let about_model = model.to_string();
    let files = Database::open(&database).await?;
    let (app, demos) = agents::define(&files, model, PACE).await?;
    first_session::keep(&demos).await?;
    let traces = TraceLog::default();
    let _listening = listen_to_spans(Arc::new(traces.clone()));
    let serving = Serving {
        app,
        streams: files.streams.clone(),
        traces,
        token,
        allow_everyone,
    };
    let (server, notice) = match addr {
        Some(address) => {
            let bound = serving.bind(address).await;
            let advised = bound.map_err(|error| match error.status() {
                Status::FailedPrecondition => error.context("give '--token TOKEN' or '--allow-everyone'"),
                _ => error,
            });
            (advised?, None)
        }
        None => serving.bind_somewhere().await?,
    };
    let recovering = serving.app.recover_every(RECOVERY);

    let greeting = Greeting::new(server.address(), &database, about_model, notice);
    let mut out = std::io::stdout().lock();
    // The server runs even if the greeting cannot be printed.
    let _ = write!(out, "{greeting}").and_then(|()| out.flush());
    drop(out);
    if open {
        open_browser(&greeting.url());
    }

    let ended = server.run_until_shutdown().await;
    recovering.stop().await;
    files.close().await.and(ended)
}

/// The server's configuration.
struct Serving {
    app: Everturn,
    streams: SqliteStreamLog,
    traces: TraceLog,
    token: Option<String>,
    allow_everyone: bool,
}

impl Serving {
    /// Binds the default address, or any free port with a printed note.
    async fn bind_somewhere(&self) -> Result<(Bound, Option<String>)> {
        match self.bind(ADDRESS).await {
            Ok(server) => Ok((server, None)),
            Err(error) => {
                let free = SocketAddr::new(ADDRESS.ip(), 0);
                let notice = format!(
                    "{ADDRESS} cannot be had, so this is another port: {}.",
                    error.message()
                );
                Ok((self.bind(free).await?, Some(notice)))
            }
        }
    }

    async fn bind(&self, address: SocketAddr) -> Result<Bound> {
        let mut server = self.app.server().stream_log(self.streams.clone());
        if let Some(token) = &self.token {
            server = server.context(BearerTokens::new([("owner", token)]));
        }
        if self.allow_everyone {
            server = server.allow_everyone();
        }
        // Only users of this machine reach a loopback address, and only the user who started the program has
        // its token. Others may read, but not change sessions, nor receive the private text of errors.
        let (access, exposure) = if address.ip().is_loopback() || self.token.is_some() {
            (ArchiveAccess::everyone(), Exposure::Full)
        } else {
            (ArchiveAccess::none(), Exposure::Public)
        };
        server
            .archive(access.clone())
            .operators(access)
            .exposure(exposure)
            .traces(&self.traces)
            .openai()
            .agui()
            .studio(Studio::new())
            .bind(address)
            .await
    }
}

/// Opens an address in the desktop's browser, if there is one.
fn open_browser(url: &str) {
    let (program, arguments): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    let started = Command::new(program)
        .args(arguments)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        eprintln!("playground: no browser was opened, {program}: {error}");
    }
}
