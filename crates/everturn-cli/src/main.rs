//! The `everturn` program: agents, stored sessions and background runs on the command line, on a server or in
//! a store.
//!
//! `arguments.rs` defines the arguments, and each command group has its own file:
//!
//! | file | commands |
//! |---|---|
//! | `chat.rs` | `chat` |
//! | `agents.rs` | `agents` |
//! | `flow.rs` | `run` |
//! | `sessions.rs` | `sessions …` |
//! | `runs.rs` | `runs …` |
//! | `tenants.rs` | `tenants` |
//! | `new.rs` | `new` |
//! | `shell.rs` | `completions`, `man` |

mod agents;
mod answers;
mod arguments;
mod chat;
mod failure;
mod flow;
mod new;
mod output;
mod runs;
mod server;
mod sessions;
mod shell;
mod store;
mod target;
mod tenants;
mod transcript;

use std::process::ExitCode;

use clap::Parser;

use self::arguments::{Arguments, Command, TargetCommand};
use self::failure::Outcome;
use self::output::Output;
use self::target::Target;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Wrong arguments end the program here, with code 2.
    let arguments = Arguments::parse();
    let output = Output::new(arguments.json);
    match run(arguments, output).await {
        Ok(exit) => exit.into(),
        Err(failure) => output.failure(&failure).into(),
    }
}

async fn run(arguments: Arguments, output: Output) -> Outcome {
    let target = || Target::choose(arguments.url.as_deref(), arguments.store.as_deref());
    match arguments.command {
        Command::New(project) => new::run(&project, output),
        Command::Completions { shell } => shell::completions(shell, output),
        Command::Man { folder } => shell::man(&folder, output),
        Command::TargetCommand(command) => {
            let target = target()?;
            let outcome = match command {
                TargetCommand::Chat(chat) => chat::run(chat, &target, output).await,
                TargetCommand::Agents => agents::run(&target, output).await,
                TargetCommand::Run(flow) => flow::run(flow, &target, output).await,
                TargetCommand::Sessions(sessions) => sessions::run(sessions, &target, output).await,
                TargetCommand::Runs(runs) => runs::run(runs, &target, output).await,
                TargetCommand::Tenants(tenants) => tenants::run(tenants, &target, output).await,
            };
            outcome.map_err(|failure| target.advise(failure))
        }
    }
}
