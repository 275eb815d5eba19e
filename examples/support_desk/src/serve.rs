//! The server: its settings, its page, and what its operator does.

use std::path::PathBuf;
use std::time::Duration;

use everturn::agent::store::SessionQuery;
use everturn::core::stream_log::MemoryStreamLog;
use everturn::prelude::*;
use everturn::server::axum::Router;
use everturn::server::axum::response::Html;
use everturn::server::axum::routing::get;
use everturn::server::{ArchiveAccess, Principal};

use crate::desk;
use crate::house_model::House;
use crate::orders::Orders;
use crate::people::{Caller, People};

/// How often to poll for background runs whose process died.
const RECOVERY: Duration = Duration::from_secs(15);

/// What the program is told by its environment.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ADDRESS`: where to serve.
    pub address: String,
    /// `DATA`: the folder of all files.
    pub data: PathBuf,
    /// `MODEL_URL`: the model server.
    pub model_url: String,
    /// `PEOPLE`: customers and staff with their tokens.
    pub people: String,
}

impl Settings {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` that names the variable that is missing.
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

    async fn open_store(&self) -> Result<SqliteStore> {
        std::fs::create_dir_all(&self.data)?;
        SqliteStore::open(self.data.join("sessions.db")).await
    }
}

/// Serves until Ctrl-C or `SIGTERM`.
///
/// # Errors
/// A setting that is wrong, a file that cannot be opened, an address that is taken.
pub async fn serve(settings: Settings) -> Result<()> {
    let store = settings.open_store().await?;
    let app = Everturn::builder()
        .plugin(House::new(&settings.model_url))
        .default_model("house/large")
        .build()
        .await?;
    let orders = Orders::demonstration(settings.data.join("refunds.txt"));
    desk::define(&app, &orders, store.clone())?;
    let staff_only = |context: &Context| Caller::of(context).is_ok_and(|caller| caller.is_staff);
    let server = app
        .server()
        .context(People::parse(&settings.people)?)
        .archive(ArchiveAccess::when(staff_only))
        .stream_log(MemoryStreamLog::new())
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

/// Deletes everything that a customer said, also from the bytes of files. The server may run.
///
/// # Errors
/// If the store cannot be opened or changed.
pub async fn erase(settings: &Settings, customer: &str) -> Result<u64> {
    let store = settings.open_store().await?;
    let archive = Archive::of(store.clone(), Principal::new(customer.to_owned()).scope());
    let mut deleted = 0;
    loop {
        let sessions = archive.sessions(&SessionQuery::default()).await?;
        if sessions.items.is_empty() {
            break;
        }
        for session in sessions.items {
            deleted += archive.delete_session(&session.session_id).await?;
        }
    }
    store.vacuum().await?;
    store.close().await?;
    Ok(deleted)
}
