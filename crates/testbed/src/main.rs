//! Serves the agents of the conformance cases, so that clients in any language can be tested against them.
//!
//! | path | route |
//! |---|---|
//! | `/<agent>`, `/<agent>/getSnapshot`, `/<agent>/abort`, … | the agents and their companion actions |
//! | `/flows/<flow>` | a few flows: `echo`, `streamy`, `bulky`, `slowly`, `failing`, `denied` |
//! | `/agui/<agent>`, `/copilotkit/…` | the agents over AG-UI |
//! | `/v1/…` | the agents over OpenAI's HTTP API |
//! | `/mcp` | the agents and tools over MCP |
//! | `/testbed/program` | accepts `{"responses": […], "chunks": [[…]]}`: the next answers of the model |
//!
//! The model repeats its last answer.

mod arguments;
mod flows;
mod program;
mod stores;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, header};
use clap::Parser as _;
use everturn_agent::store::SessionStore;
use everturn_agui::ServeAgui;
use everturn_core::{Exposure, Result};
use everturn_mcp::McpServer;
use everturn_openai::ServeOpenAi;
use everturn_server::{ArchiveAccess, Bound, CorsLayer, Layout, Limits, Server};
use mimalloc::MiMalloc;

use self::arguments::Arguments;

/// Returns freed memory to the system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The delay of the model, so that concurrent turns overlap.
const THINKING: Duration = Duration::from_millis(5);

/// The idle timeout of a connection: a test with many connections needs time to open them.
const IDLE: Duration = Duration::from_mins(5);

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let sessions = stores::sessions(&arguments.store, Duration::from_millis(arguments.busy_timeout)).await?;
    let server = bind(arguments, sessions.store()).await?;
    println!("listening on http://{}", server.address());
    let ended = server.run_until_shutdown().await;
    sessions.close().await?;
    ended
}

/// Pages of every origin may call, with the headers that front ends send.
fn pages() -> CorsLayer {
    CorsLayer::permissive().allow_headers([
        header::AUTHORIZATION,
        header::CONTENT_TYPE,
        HeaderName::from_static("x-run-id"),
    ])
}

async fn bind(arguments: Arguments, sessions: Arc<dyn SessionStore>) -> Result<Bound> {
    let streams = stores::streams(&arguments.store, arguments.stream_bytes).await?;
    let harness = testbed::watched_harness(sessions, streams.clone())?;
    harness.model().delay(THINKING);
    flows::define(harness.registry())?;
    let layout = Layout::default().agents_at("");
    let server = Server::new(harness.registry())
        .routes(layout.routes(harness.registry()))
        // Clients under test need the full error messages.
        .exposure(Exposure::Full)
        .limits(Limits::default().header_time(IDLE))
        .openai()
        .agui()
        .adapter("/mcp", McpServer::new(harness.registry()))
        .cors(pages())
        .merge(program::router(harness.model().clone()));
    let server = if arguments.archive {
        server.archive(ArchiveAccess::everyone())
    } else {
        server
    };
    let server = if arguments.forget_streams {
        server
    } else {
        stores::keep_streams(server, streams, arguments.stream_bytes)
    };
    server.bind(arguments.address).await
}
