//! The playground: a chat with demo agents on the terminal, without a network.
//!
//! Lines are read from the terminal, or from whatever is piped in. If nobody types and nothing is piped, a short tour
//! is played instead.

mod agents;
mod command;
mod conversation;
mod lines;
mod listing;
mod screen;
mod tour;
mod visit;

use std::process::ExitCode;

use everturn::Result;

use crate::lines::Lines;
use crate::screen::Screen;
use crate::visit::Visit;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("playground: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let mut screen = Screen::new();
    let demos = agents::define(Screen::pace()).await?;
    screen.greet(&demos);
    let lines = Lines::open(&mut screen).await;
    Visit::new(demos, lines, screen).await?.stay().await;
    Ok(())
}
