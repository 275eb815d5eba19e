//! Serves the desk.

use std::process::ExitCode;

use everturn::Result;
use mimalloc::MiMalloc;
use support_desk::serve::{self, Settings};

/// Returns freed memory to the system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("support_desk: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let settings = Settings::from_environment()?;
    // Traces, metrics and log lines are sent to the collector in `OTEL_EXPORTER_OTLP_ENDPOINT`; log lines are
    // also printed.
    let _telemetry = everturn::otlp::start()?;
    serve::serve(settings).await
}
