//! Serves the assistant over HTTP.

mod assistant;

use std::net::SocketAddr;

use everturn::models::OpenAi;
use everturn::prelude::*;
use everturn::testkit::OfflineModel;

/// Where to serve, unless the variable `ADDRESS` says otherwise.
const ADDRESS: &str = "127.0.0.1:8080";

/// Where conversations are kept, unless the variable `DATABASE` says otherwise.
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
    app.serve(address).await?;
    store.close().await
}

/// Returns the application with a model: OpenAI's if there is a key, else one that is a handful of rules.
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
