//! Serves the assistant over HTTP.

mod assistant;

use std::net::SocketAddr;

use everturn::models::OpenAi;
use everturn::prelude::*;
use everturn::server::BearerTokens;
use everturn::testkit::OfflineModel;
use mimalloc::MiMalloc;

/// Returns freed memory to the system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The default address; the variable `ADDRESS` overrides it.
const ADDRESS: &str = "127.0.0.1:8080";

/// The default database; the variable `DATABASE` overrides it.
const DATABASE: &str = "sessions.db";

#[tokio::main]
async fn main() -> Result<()> {
    let address = variable("ADDRESS", ADDRESS);
    let address: SocketAddr = address.parse().map_err(|_| {
        Error::invalid_argument(format!("ADDRESS is '{address}', which is not like {ADDRESS}"))
    })?;
    let store = SqliteStore::open(variable("DATABASE", DATABASE)).await?;

    let app = app().await?;
    assistant::define(&app, store.clone())?;
    println!("Serving on http://{address}");
    match std::env::var("TOKENS") {
        Ok(text) => {
            let tokens = tokens(&text)?;
            app.serve_with(address, |server| server.context(tokens)).await?;
        }
        // Every user of this machine may use the agent. A server on another address requires tokens.
        Err(_) => app.serve(address).await?,
    }
    store.close().await
}

/// Parses callers and their tokens, such as `ann=a-long-random-token,ben=another`. Callers see only their own
/// conversations.
fn tokens(text: &str) -> Result<BearerTokens> {
    let pairs = text.split(',').map(|pair| {
        let found = pair.trim().split_once('=').filter(|(_, token)| token.len() >= 16);
        found.ok_or_else(|| {
            Error::invalid_argument(
                "TOKENS must be like name=token,name=token, with tokens of 16 characters or more",
            )
        })
    });
    Ok(BearerTokens::new(pairs.collect::<Result<Vec<_>>>()?))
}

/// Returns the application with OpenAI's model if there is a key, else with the offline model (rule-based, no
/// network).
async fn app() -> Result<Everturn> {
    let builder = Everturn::builder();
    let builder = if std::env::var_os("OPENAI_API_KEY").is_some() {
        builder
            .plugin(OpenAi::from_env())
            .default_model("openai/gpt-5-mini")
    } else {
        builder
            .model("offline", OfflineModel::new())
            .default_model("offline")
    };
    builder.build().await
}

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}
