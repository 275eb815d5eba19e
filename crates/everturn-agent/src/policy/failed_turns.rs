//! The state that a failed turn leaves, and the snapshots from which a conversation can be resumed.

use everturn_core::{Error, Result};

use crate::{Snapshot, SnapshotStatus};

/// The state that a turn leaves if it fails or is stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FailedTurns {
    /// A snapshot with the user's message, all finished rounds, the error and what was used, from which the
    /// conversation continues. Its status is `failed`, or `aborted` if the client left or a limit was
    /// reached.
    ///
    /// A turn that fails before the model is called leaves nothing. Nor does one of a custom agent, unless
    /// its error is [committed](crate::Turn::committed).
    #[default]
    Keep,
    /// Nothing: the session is as it was before the turn, and its first message is lost if its first turn
    /// fails. Snapshots of background runs that failed or were aborted cannot be resumed.
    Discard,
}

impl FailedTurns {
    /// Returns whether a conversation can be resumed from a snapshot.
    pub(crate) fn admit(self, snapshot: &Snapshot) -> bool {
        match snapshot.status {
            SnapshotStatus::Completed => true,
            SnapshotStatus::Failed | SnapshotStatus::Aborted => {
                self == Self::Keep && snapshot.state.is_some()
            }
            _ => false,
        }
    }
}

/// Returns the snapshot if a conversation can be resumed from it.
///
/// # Errors
/// `FAILED_PRECONDITION` if it is not completed, and no resume point of the agent all the same.
pub(crate) fn resumable(snapshot: Snapshot, failed_turns: FailedTurns) -> Result<Snapshot> {
    if failed_turns.admit(&snapshot) {
        return Ok(snapshot);
    }
    Err(Error::failed_precondition(format!(
        "cannot resume from snapshot '{}': {}",
        snapshot.snapshot_id,
        why_not(&snapshot)
    ))
    .with_public())
}

/// Returns why a conversation cannot be resumed from a snapshot.
pub(crate) fn why_not(snapshot: &Snapshot) -> String {
    let status = snapshot.status;
    match status {
        SnapshotStatus::Aborting => "it is aborting: its run is being stopped; retry with the same id".into(),
        _ if status.is_under_way() => format!("it is {status}: wait for its run, or abort it"),
        SnapshotStatus::Expired => "it is expired: its run has lost its worker".into(),
        _ if snapshot.state.is_none() => format!("it is {status} and holds no state"),
        _ => format!("it is {status}"),
    }
}
