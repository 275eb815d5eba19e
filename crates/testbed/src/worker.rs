//! A worker that tests start as a separate process, to stop and kill it and examine what it left.
//!
//! Its agent runs tasks: turns of six model calls and five tool calls. Every effect on the outside world is recorded
//! in a file that belongs to no store, so that a test can count repetitions.

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
    /// How long a silent worker keeps its leases; its heartbeat is four times as frequent.
    pub lease: Duration,
    /// How long a tool call and a model call take.
    pub pace: Duration,
    /// The sessions in which to begin a task in the background, each with its text.
    pub tasks: Vec<(String, String)>,
    /// How often to poll for lost runs, if at all.
    pub recover_every: Option<Duration>,
    /// Whether to do nothing but to begin a save and stay in it, with the store's lock, until a line arrives.
    #[serde(default)]
    pub holds: bool,
    /// Whether to do nothing but begin a branch at each snapshot that is named on the worker's input.
    #[serde(default)]
    pub branches: bool,
    /// Whether to do nothing but run the turns that are named on the worker's input.
    #[serde(default)]
    pub talks: bool,
    /// Whether the tasks are sessions in which tools ask and are approved, one after the other.
    #[serde(default)]
    pub approves: bool,
    /// The model calls to which a session is limited, whose turns the worker runs until the limit ends them; then it says
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
    /// In a PostgreSQL database, in a schema of its own.
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
        // A killed process loses nothing that the operating system has already; loss of power is not tested here.
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
    /// Creates the worker's agent on a registry of its own.
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

    /// Begins a save, says `holding` while the store's lock is held, and ends the save when a line arrives.
    ///
    /// # Errors
    /// The errors of opening the store and of the save.
    pub async fn hold(&self) -> Result<()> {
        hold::hold(&self.store).await
    }

    /// Runs the turns that come on the worker's input until it is closed. Each takes as long as the worker's pace.
    ///
    /// # Errors
    /// The errors of opening the store; `INVALID_ARGUMENT` for a line that is no turn.
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
