//! When a moment of a conversation becomes a snapshot.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use everturn_core::{Result, panic_error};

use crate::{SessionState, SnapshotEvent};

/// A moment at which a snapshot could be taken.
#[derive(Debug)]
#[non_exhaustive]
pub struct SnapshotMoment<'a> {
    /// What happened.
    pub event: SnapshotEvent,
    /// The conversation now.
    pub state: &'a SessionState,
    /// The conversation at the snapshot before; `None` if there is none.
    pub previous: Option<&'a SessionState>,
    /// The number the snapshot would have in its session.
    pub index: u64,
    /// The number of the turn in its line of ancestors.
    pub turn_index: u64,
}

/// Decides which moments become snapshots. Cloning is cheap.
///
/// A turn without a snapshot still counts for the turns that follow it in the same invocation; whoever resumes later
/// goes on from the last snapshot that was taken.
///
/// ```
/// use everturn_agent::SnapshotPolicy;
///
/// let every_other_turn = SnapshotPolicy::when(|moment| moment.turn_index % 2 == 1);
/// # let _ = every_other_turn;
/// ```
#[derive(Clone)]
pub struct SnapshotPolicy(Arc<dyn Fn(&SnapshotMoment<'_>) -> bool + Send + Sync>);

impl SnapshotPolicy {
    /// Every successful turn: what an agent with a store does unless it is told otherwise.
    pub fn always() -> Self {
        Self::when(|_| true)
    }

    /// No turn. Background runs still have their row.
    pub fn never() -> Self {
        Self::when(|_| false)
    }

    /// The moments that `decide` says. It is asked while the invocation waits, so it should not take long.
    pub fn when(decide: impl Fn(&SnapshotMoment<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(decide))
    }

    /// Whether this moment becomes a snapshot.
    ///
    /// # Errors
    /// `INTERNAL` if the policy panics.
    pub(crate) fn wants(&self, moment: &SnapshotMoment<'_>) -> Result<bool> {
        catch_unwind(AssertUnwindSafe(|| (self.0)(moment)))
            .map_err(|payload| panic_error("the snapshot policy", payload.as_ref()))
    }
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self::always()
    }
}

impl fmt::Debug for SnapshotPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotPolicy")
    }
}
