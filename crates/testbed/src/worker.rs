//! A worker that tests start as a process of its own, to stop it, kill it and see what is left.
//!
//! Its agent runs errands: turns of six model calls and five tool calls. Everything it does to the world outside is
//! noted in a file that belongs to no store, so that a test can count what was done twice.

mod effects;
mod errand;
mod unforced;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::SessionStore;
use everturn_agent::{Agent, Heartbeat, WorkerLoss};
use everturn_core::{Error, Registry, Result};
use everturn_file::FileStore;
use everturn_sqlite::{Durability, SqliteStore};
use serde::{Deserialize, Serialize};

pub use self::effects::{Effect, Effects};
pub use self::errand::{AGENT, STEPS};
use self::unforced::UnforcedDisk;

/// What a worker is told, as JSON in its first argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Orders {
    /// Where conversations are kept.
    pub store: StorePlace,
    /// Where effects are noted.
    pub effects: PathBuf,
    /// How long a silent worker keeps its runs; it gives a sign of life four times as often.
    pub lease: Duration,
    /// How long a tool takes, and the model.
    pub pace: Duration,
    /// The sessions in which to begin an errand in the background, and what to say.
    pub errands: Vec<(String, String)>,
    /// How often to look for lost runs, if at all.
    pub recover_every: Option<Duration>,
}

/// Where conversations are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StorePlace {
    /// In a SQLite database.
    Sqlite(PathBuf),
    /// In a folder of files.
    Files(PathBuf),
}

impl StorePlace {
    /// Opens the store.
    ///
    /// # Errors
    /// What opening it fails with.
    pub async fn open(&self) -> Result<Arc<dyn SessionStore>> {
        // A process that is killed loses nothing that the operating system has; power is not what is tested.
        Ok(match self {
            Self::Sqlite(path) => Arc::new(
                SqliteStore::options(path)
                    .durability(Durability::Normal)
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
    /// The worker's agent, on a registry of its own.
    ///
    /// # Errors
    /// What opening the store or defining the agent fails with.
    pub async fn agent(&self) -> Result<(Registry, Agent)> {
        let registry = Registry::new();
        let effects = Effects::at(&self.effects);
        let agent = errand::define(&registry, &effects, self.pace)?
            .store(self.store.open().await?)
            .heartbeat(Heartbeat {
                interval: self.lease / 4,
                expiry: self.lease,
            })
            .on_worker_loss(WorkerLoss::TakeOver { attempts: 10 })
            .define()?;
        Ok((registry, agent))
    }

    /// Reads what a worker was told.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not what [`Orders`] look like.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::invalid_argument(format!("bad orders: {error}")))
    }
}
