//! The playground: demo agents, served over HTTP or used on the terminal. They use the model that is available; without
//! a key or a network, one made of rules.

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

use self::arguments::Mode;

#[tokio::main]
async fn main() -> ExitCode {
    let done = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Mode::Help) => {
            print!("{}", arguments::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Mode::Serve {
            address,
            database,
            model,
            open,
            curl,
        }) => {
            let told = serve::Told { open, curl };
            serve::serve(address, &database, model, told).await
        }
        Ok(Mode::Chat { database, model }) => chat::chat(&database, model).await,
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
