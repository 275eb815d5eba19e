//! Serves the desk or the booking service, or makes a token.

use std::process::ExitCode;

use everturn::{Error, Result};
use mimalloc::MiMalloc;
use travel_desk::booking_service::BookingService;
use travel_desk::serve::{self, Settings, variable};
use travel_desk::tokens::token;

/// Returns freed memory to the system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("travel_desk: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => serve::serve(Settings::from_environment()?).await,
        ["bookings"] => {
            let address = variable("ADDRESS", Some("127.0.0.1:9000"))?;
            let service = BookingService::start(&address, fastrand::u64(..)).await?;
            println!("Serving bookings on {}", service.url());
            Ok(tokio::signal::ctrl_c().await?)
        }
        ["token", name, roles @ ..] => {
            println!("{}", token(&variable("JWT_SECRET", None)?, name, roles));
            Ok(())
        }
        _ => Err(Error::invalid_argument(
            "usage: travel_desk, travel_desk bookings, travel_desk token NAME [ROLE]…",
        )),
    }
}
