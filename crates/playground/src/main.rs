//! The playground: demo agents, served over HTTP or used on the terminal, with the configured model, or a
//! rule-based one without a key or a network.
#![allow(clippy::disallowed_methods, reason = "work takes its time")]

mod agents;
mod arguments;
mod chat;
mod database;
mod demo_model;
mod first_session;
mod greeting;
mod model;
mod serve;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use self::arguments::{Arguments, Command};

/// Returns freed memory to the system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // Wrong arguments end the program here, with code 2.
    let arguments = Arguments::parse().checked().unwrap_or_else(|error| error.exit());
    let done = match arguments.command {
        Some(Command::Chat) => chat::chat(&arguments.database, arguments.model).await,
        None => serve::serve(arguments).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("playground: {error}");
            ExitCode::FAILURE
        }
    }
}
