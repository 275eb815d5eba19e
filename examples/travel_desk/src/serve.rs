//! The server and its settings.

use std::sync::Arc;

use everturn::agent::SessionStore;
use everturn::postgres::PostgresStore;
use everturn::prelude::*;
use everturn::server::{ArchiveAccess, JwtTokens};

use crate::booking_service::BookingService;
use crate::desk;
use crate::offline_model::OfflineModel;
use crate::tools::STAFF;

/// The settings, read from the environment.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ADDRESS`: the address to listen on; `127.0.0.1:8080` by default.
    pub address: String,
    /// `DATABASE`: the URL of a PostgreSQL database, or the path of an SQLite file.
    pub database: String,
    /// `BOOKING_URL`: the address of the booking service.
    pub booking_url: String,
    /// `JWT_SECRET`: the secret with which tokens are signed.
    pub secret: String,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` that names the variable that is missing.
    pub fn from_environment() -> Result<Self> {
        let required = |name: &str| {
            let missing = |_| Error::failed_precondition(format!("the environment variable {name} is not set"));
            std::env::var(name).map_err(missing)
        };
        Ok(Self {
            address: std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned()),
            database: required("DATABASE")?,
            booking_url: required("BOOKING_URL")?,
            secret: required("JWT_SECRET")?,
        })
    }
}

/// Serves until Ctrl-C or `SIGTERM`.
///
/// # Errors
/// A wrong setting, a database that cannot be opened, an address in use.
pub async fn serve(settings: Settings) -> Result<()> {
    let store: Arc<dyn SessionStore> = if settings.database.starts_with("postgres") {
        Arc::new(PostgresStore::connect(&settings.database).await?)
    } else {
        Arc::new(SqliteStore::open(&settings.database).await?)
    };
    let app = Everturn::builder()
        .model("offline", OfflineModel)
        .default_model("offline")
        .with(BookingService::new(settings.booking_url)?)
        .build()
        .await?;
    desk::define(&app, store)?;
    let server = app
        .server()
        .context(JwtTokens::shared_secret(settings.secret, "travel-desk"))
        .archive(ArchiveAccess::role(STAFF))
        .bind(settings.address)
        .await?;
    println!("Serving on http://{}", server.address());
    server.run_until_shutdown().await
}
