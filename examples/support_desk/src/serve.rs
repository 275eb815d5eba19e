//! The server, its settings and its page.

use std::path::PathBuf;
use std::time::Duration;

use everturn::prelude::*;
use everturn::server::ArchiveAccess;
use everturn::server::axum::Router;
use everturn::server::axum::response::Html;
use everturn::server::axum::routing::get;
use everturn::sqlite::SqliteStreamLog;

use crate::desk;
use crate::house_model::House;
use crate::orders::Orders;
use crate::people::{OPERATOR, People, STAFF};

/// How often to poll for background runs whose process died.
const RECOVERY: Duration = Duration::from_secs(15);

/// The settings from the environment.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ADDRESS`: the address to listen on.
    pub address: String,
    /// `DATA`: the folder of all files.
    pub data: PathBuf,
    /// `MODEL_URL`: the model server.
    pub model_url: String,
    /// `PEOPLE`: customers, staff and operators with their tokens.
    pub people: String,
}

impl Settings {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` that names the missing variable.
    pub fn from_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        let needed = |name: &str| {
            variable(name)
                .ok_or_else(|| Error::failed_precondition(format!("the variable {name} is not set")))
        };
        Ok(Self {
            address: variable("ADDRESS").unwrap_or_else(|| "127.0.0.1:8080".to_owned()),
            data: variable("DATA").unwrap_or_else(|| "data".to_owned()).into(),
            model_url: needed("MODEL_URL")?,
            people: needed("PEOPLE")?,
        })
    }
}

/// Serves until Ctrl-C or `SIGTERM`.
///
/// # Errors
/// A wrong setting, a file that cannot be opened, an address in use.
pub async fn serve(settings: Settings) -> Result<()> {
    let data = &settings.data;
    std::fs::create_dir_all(data)?;
    let store = SqliteStore::open(data.join("sessions.db")).await?;
    let streams = SqliteStreamLog::open(data.join("streams.db")).await?;
    let app = Everturn::builder()
        .plugin(House::new(&settings.model_url))
        .default_model("house/large")
        .with(Orders::demonstration(data.join("refunds.txt")))
        .build()
        .await?;
    desk::define(&app, store.clone())?;
    let server = app
        .server()
        .context(People::parse(&settings.people)?)
        .archive(ArchiveAccess::role(STAFF))
        .operators(ArchiveAccess::role(OPERATOR))
        .stream_log(streams)
        .merge(Router::new().route("/", get(|| async { Html(include_str!("page.html")) })))
        .bind(settings.address)
        .await?;
    println!("Serving on http://{}", server.address());
    let recovering = app.recover_every(RECOVERY);
    let ended = server.run_until_shutdown().await;
    recovering.stop().await;
    store.close().await?;
    ended
}
