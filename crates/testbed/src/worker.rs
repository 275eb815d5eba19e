//! A worker that tests start as a separate process, to stop or kill it and examine its store.
//!
//! Its agent runs tasks: turns of six model calls and five tool calls. Every external effect is recorded in a
//! separate file, so that a test can count repetitions.

mod approving;
mod branching;
mod effects;
mod hold;
mod spending;
mod talk;
mod task;
mod unforced;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::SessionStore;
use everturn_agent::{Agent, Heartbeat, WorkerLoss};
use everturn_core::{Error, Registry, Result};
use everturn_file::FileStore;
use everturn_postgres::PostgresStore;
use everturn_sqlite::{Durability, SqliteStore};
use serde::{Deserialize, Serialize};

pub use self::approving::{APPROVED, approve, approving, ask};
pub use self::branching::{branch, branching};
pub use self::effects::{Effect, Effects};
pub use self::spending::{SPENT, spend};
pub use self::talk::POLICIES;
pub use self::task::{AGENT, STEPS};
use self::unforced::UnforcedDisk;

/// The orders of a worker, as JSON in its first argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is an order of its own")]
pub struct Orders {
    /// The store of the sessions.
    pub store: StorePlace,
    /// The file in which effects are recorded.
    pub effects: PathBuf,
    /// The lease of a silent worker; its heartbeat is four times as frequent.
    pub lease: Duration,
    /// The duration of a tool call and of a model call.
    pub pace: Duration,
    /// The sessions in which to start a task in the background, each with its text.
    pub tasks: Vec<(String, String)>,
    /// How often to poll for lost runs, if at all.
    pub recover_every: Option<Duration>,
    /// Whether the worker only starts a save and stays in it, holding the store's lock, until it receives a
    /// line.
    #[serde(default)]
    pub holds: bool,
    /// Whether the worker only starts a branch at each snapshot named on its input.
    #[serde(default)]
    pub branches: bool,
    /// Whether the worker only runs the turns named on its input.
    #[serde(default)]
    pub talks: bool,
    /// Whether the tasks are sessions in which tools ask and are approved, one after the other.
    #[serde(default)]
    pub approves: bool,
    /// The limit of model calls of a session; the worker runs turns until it is reached, and then prints
    /// `spent`.
    #[serde(default)]
    pub spends: Option<u64>,
}

/// The kind and place of a store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StorePlace {
    /// In a SQLite database.
    Sqlite(PathBuf),
    /// In a folder of files.
    Files(PathBuf),
    /// In a PostgreSQL database, in a separate schema.
    Postgres {
        /// The connection string.
        url: String,
        /// The schema.
        schema: String,
    },
}

impl StorePlace {
    /// Opens the store.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn open(&self) -> Result<Arc<dyn SessionStore>> {
        // A killed process loses nothing that the operating system has received; loss of power is not tested
        // here.
        Ok(match self {
            Self::Sqlite(path) => Arc::new(
                SqliteStore::options(path)
                    .durability(Durability::Normal)
                    .open()
                    .await?,
            ),
            Self::Postgres { url, schema } => Arc::new(
                PostgresStore::options(url)
                    .schema(schema)
                    .connections(4)
                    .open()
                    .await?,
            ),
            Self::Files(root) => Arc::new(
                FileStore::options(root)
                    .disk(Arc::new(UnforcedDisk))
                    .poll_every(Duration::from_millis(50))
                    .open()
                    .await?,
            ),
        })
    }
}

impl Orders {
    /// Creates the worker's agent on a new registry.
    ///
    /// # Errors
    /// The error of the store or of the agent's definition.
    pub async fn agent(&self) -> Result<(Registry, Agent)> {
        let registry = Registry::new();
        let effects = Effects::at(&self.effects);
        let agent = task::define(&registry, &effects, self.pace)?
            .store(self.store.open().await?)
            .heartbeat(Heartbeat {
                interval: self.lease / 4,
                expiry: self.lease,
            })
            .on_worker_loss(WorkerLoss::TakeOver { attempts: 10 })
            .define()?;
        Ok((registry, agent))
    }

    /// Starts a save, prints `holding` while the store's lock is held, and ends the save on the next line.
    ///
    /// # Errors
    /// The errors of opening the store and of the save.
    pub async fn hold(&self) -> Result<()> {
        hold::hold(&self.store).await
    }

    /// Runs the turns of the worker's input until it is closed. Each has the worker's duration.
    ///
    /// # Errors
    /// The errors of opening the store; `INVALID_ARGUMENT` for an invalid line.
    pub async fn talk(&self) -> Result<()> {
        talk::talk(&self.store, self.pace, self.lease).await
    }

    /// Parses a worker's orders.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the text is not [`Orders`].
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::invalid_argument(format!("bad orders: {error}")))
    }
}
