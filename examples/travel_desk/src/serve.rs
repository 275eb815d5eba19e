//! The server and its settings.

use std::sync::Arc;
use std::time::Duration;

use everturn::prelude::*;
use everturn::server::{ArchiveAccess, ContextProvider, JwtTokens, PrincipalId};

use crate::bookings::Bookings;
use crate::desk;
use crate::offline_model::OfflineModel;
use crate::tokens::AUDIENCE;
use crate::tools::STAFF;

/// The role that manages all tenants.
pub const OPERATOR: &str = "operator";

/// How often to poll for background runs whose process died.
const RECOVERY: Duration = Duration::from_secs(15);

/// The settings, read from the environment.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `ADDRESS`: the address to listen on.
    pub address: String,
    /// `DATABASE`: the URL of a PostgreSQL database, or the path of an SQLite file.
    pub database: String,
    /// `SCHEMA`: the schema in the PostgreSQL database.
    pub schema: String,
    /// `BOOKING_URL`: the address of the booking service.
    pub booking_url: String,
    /// `BOOKING_TIMEOUT`: how long the booking service may take to answer, in milliseconds.
    pub booking_timeout: Duration,
    /// `TURN_LEASE`: how long the session of a turn stays locked after its process died, in milliseconds.
    pub turn_lease: Duration,
    /// `JWT_SECRET`: the secret with which tokens are signed.
    pub secret: String,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` that names the variable that is missing or wrong.
    pub fn from_environment() -> Result<Self> {
        Ok(Self {
            address: variable("ADDRESS", Some("127.0.0.1:8080"))?,
            database: variable("DATABASE", Some("travel_desk.db"))?,
            schema: variable("SCHEMA", Some("everturn"))?,
            booking_url: variable("BOOKING_URL", Some("http://127.0.0.1:9000"))?,
            booking_timeout: milliseconds("BOOKING_TIMEOUT", "5000")?,
            turn_lease: milliseconds("TURN_LEASE", "15000")?,
            secret: variable("JWT_SECRET", None)?,
        })
    }
}

/// Returns an environment variable, or its default.
///
/// # Errors
/// `FAILED_PRECONDITION` if it is not set and has no default.
pub fn variable(name: &str, default: Option<&str>) -> Result<String> {
    match (std::env::var(name), default) {
        (Ok(value), _) => Ok(value),
        (Err(_), Some(default)) => Ok(default.to_owned()),
        (Err(_), None) => Err(Error::failed_precondition(format!(
            "the variable {name} is not set"
        ))),
    }
}

fn milliseconds(name: &str, default: &str) -> Result<Duration> {
    let text = variable(name, Some(default))?;
    let wrong =
        |_| Error::failed_precondition(format!("{name} is '{text}', which is no number of milliseconds"));
    text.parse().map(Duration::from_millis).map_err(wrong)
}

/// Serves until Ctrl-C or `SIGTERM`.
///
/// # Errors
/// A wrong setting, a database that cannot be opened, an address in use.
pub async fn serve(settings: Settings) -> Result<()> {
    let store: Arc<dyn SessionStore> = if settings.database.starts_with("postgres") {
        let options = PostgresStore::options(&settings.database).schema(&settings.schema);
        Arc::new(options.open().await?)
    } else {
        Arc::new(SqliteStore::open(&settings.database).await?)
    };
    let app = Everturn::builder()
        .model("offline", OfflineModel)
        .default_model("offline")
        .with(Bookings::new(&settings.booking_url, settings.booking_timeout)?)
        .build()
        .await?;
    desk::define(&app, store, settings.turn_lease)?;
    let tokens = JwtTokens::with_secret(&settings.secret, AUDIENCE)?.principal_id(PrincipalId::Subject);
    let server = app
        .server()
        // Staff name the customer whose conversation they look at.
        .context(tokens.acting_for(STAFF, "x-customer"))
        .archive(ArchiveAccess::role(STAFF))
        .operators(ArchiveAccess::role(OPERATOR))
        .bind(settings.address)
        .await?;
    println!("Serving on http://{}", server.address());
    let recovering = app.recover_every(RECOVERY);
    let ended = server.run_until_shutdown().await;
    recovering.stop().await;
    ended
}
