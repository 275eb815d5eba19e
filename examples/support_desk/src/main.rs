//! `support_desk` serves the desk; `support_desk erase CUSTOMER` deletes everything that a customer said.

use std::process::ExitCode;

use everturn::Result;
use support_desk::serve::{self, Settings};

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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            // Traces, metrics and log lines go to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names; lines also here.
            let _telemetry = everturn::otlp::start()?;
            serve::serve(settings).await
        }
        ["erase", customer] => {
            let deleted = serve::erase(&settings, customer).await?;
            println!("{deleted} snapshots of {customer} are deleted");
            Ok(())
        }
        _ => Err(everturn::Error::invalid_argument(
            "usage: support_desk, or support_desk erase CUSTOMER",
        )),
    }
}
