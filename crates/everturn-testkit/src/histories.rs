//! Comparing a store with a simple model of histories, over random programs.
//!
//! [`check_program`] runs a program of [`Step`]s (turns, branches, rewinds, forks, labels, deletions,
//! retention, exports and imports) on a store, through a real agent and its archive, and on a model that is a
//! list of whole snapshots. After every step both must be equal. A program is made from random numbers of any
//! source. A property testing library shrinks a failing program to the steps that matter.
//!
//! ```
//! use std::sync::Arc;
//! use everturn_agent::{SnapshotIds, store::MemoryStore};
//! use everturn_testkit::histories::{Step, check_program};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let program: Vec<Step> = [3, 1 << 40, 77, 5 << 33, 12].map(Step::from_random).into();
//! check_program(Arc::new(MemoryStore::new()), SnapshotIds::Uuid, &program).await.unwrap();
//! # }
//! ```

mod agent;
mod fixture;
mod model;
mod step;

use std::fmt;
use std::sync::Arc;

use everturn_agent::SnapshotIds;
use everturn_agent::store::SessionStore;

pub use self::step::{Return, Step};

/// The first difference between a store and the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discrepancy {
    /// The number of the step, counted from zero.
    pub step: usize,
    /// The difference after the step.
    pub what: String,
}

impl fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.what)
    }
}

/// Runs a program on an empty store and on the model, and compares them after every step. `ids` is the
/// agent's kind of snapshot ids.
///
/// # Errors
/// The first difference.
pub async fn check_program(
    store: Arc<dyn SessionStore>,
    ids: SnapshotIds,
    program: &[Step],
) -> Result<(), Discrepancy> {
    let mut fixture = fixture::Fixture::new(store, ids);
    for (number, step) in program.iter().enumerate() {
        let checked = match fixture.apply(step).await {
            Ok(()) => fixture.compare().await,
            different => different,
        };
        checked.map_err(|what| Discrepancy {
            step: number,
            what: format!("{step:?}: {what}"),
        })?;
    }
    Ok(())
}
