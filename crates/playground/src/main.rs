//! The playground: demo agents that need neither a key nor a network, served over HTTP or met on the terminal.

mod agents;
mod arguments;
mod chat;
mod database;
mod greeting;
mod serve;

use std::process::ExitCode;

use self::arguments::Wish;

#[tokio::main]
async fn main() -> ExitCode {
    let done = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Wish::Help) => {
            print!("{}", arguments::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Wish::Serve { address, database }) => serve::serve(address, &database).await,
        Ok(Wish::Chat { database }) => chat::chat(&database).await,
        Err(error) => {
            eprintln!("playground: {error}\n\n{}", arguments::HELP);
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("playground: {error}");
            ExitCode::FAILURE
        }
    }
}
