//! Runs the same work on this project and on its peers, side by side: the program behind `./bench`.
//!
//! Every contender is a process that reads one piece of work per line and answers it with a line. This
//! project is one of them (`bench worker`), so all are measured alike. Rounds are interleaved, tables show
//! the median of each contender and the spread of its rounds.

mod chart;
mod contender;
mod http_load;
mod page;
mod table;
mod worker;
mod works;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use everturn::Result;
use tokio::runtime::Builder;

/// Compares this project with its peers.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Measure only these tables, by their names.
    #[arg(long, value_delimiter = ',', value_name = "TABLE")]
    only: Vec<String>,
    /// The rounds that each contender works in each table.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Do a small part of the work: shows that everything runs, and measures nothing.
    #[arg(long)]
    quick: bool,
    /// The folder with the peers' npm packages.
    #[arg(long, value_name = "DIR")]
    npm: Option<PathBuf>,
    /// The Python that has the peers' packages.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// The worker made from Genkit's Go sources.
    #[arg(long, value_name = "PROGRAM")]
    go: Option<PathBuf>,
    /// A PostgreSQL server to work on; its database is filled.
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// The page to write the tables and charts into.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Does the work that standard input asks for.
    Worker,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    if let Some(Command::Worker) = arguments.command {
        return runtime.block_on(worker::work());
    }
    let peers = contender::Peers {
        npm: arguments.npm,
        python: arguments.python,
        go: arguments.go,
        postgres: arguments.postgres,
    };
    let measured = works::measure(
        &peers,
        &arguments.only,
        arguments.rounds,
        arguments.quick,
        &runtime,
    )?;
    if let Some(page) = arguments.page {
        page::write(&page, &measured)?;
    }
    Ok(())
}
