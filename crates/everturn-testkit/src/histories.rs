//! Does a store keep a conversation's history as it was, whatever is done to it?
//!
//! [`rehearse`] runs a program of [`Step`]s (turns, branches, rewinds, forks, labels, deletions, retention, exports and imports)
//! on a store, through a real agent and its archive, and on a model that is nothing but a list of full snapshots. After
//! every step both must be equal. Programs are made from random numbers, so any source of them will do; with a property
//! testing library, a program that fails becomes shorter until it shows only what is wrong.
//!
//! ```
//! use std::sync::Arc;
//! use everturn_agent::{SnapshotIds, store::MemoryStore};
//! use everturn_testkit::histories::{Step, rehearse};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let program: Vec<Step> = [3, 1 << 40, 77, 5 << 33, 12].map(Step::from_random).into();
//! rehearse(Arc::new(MemoryStore::new()), SnapshotIds::Uuid, &program).await.unwrap();
//! # }
//! ```

mod agent;
mod model;
mod stage;
mod step;

use std::fmt;
use std::sync::Arc;

use everturn_agent::SnapshotIds;
use everturn_agent::store::SessionStore;

pub use self::step::{Return, Step};

/// Where a store and the model parted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discrepancy {
    /// The number of the step, counted from zero.
    pub step: usize,
    /// What was different after it.
    pub what: String,
}

impl fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.what)
    }
}

/// Runs a program on an empty store and on the model, comparing them after every step. `ids` is how the agent names its
/// snapshots.
///
/// # Errors
/// The first difference.
pub async fn rehearse(
    store: Arc<dyn SessionStore>,
    ids: SnapshotIds,
    program: &[Step],
) -> Result<(), Discrepancy> {
    let mut stage = stage::Stage::new(store, ids);
    for (number, step) in program.iter().enumerate() {
        let played = match stage.play(step).await {
            Ok(()) => stage.compare().await,
            different => different,
        };
        played.map_err(|what| Discrepancy {
            step: number,
            what: format!("{step:?}: {what}"),
        })?;
    }
    Ok(())
}
