//! Serves the desk.

use std::process::ExitCode;

use travel_desk::serve::{self, Settings};

#[tokio::main]
async fn main() -> ExitCode {
    let served = match Settings::from_environment() {
        Ok(settings) => serve::serve(settings).await,
        Err(error) => Err(error),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("travel_desk: {error}");
            ExitCode::FAILURE
        }
    }
}
