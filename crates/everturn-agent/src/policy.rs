//! The choices that an agent's definition makes: permissions, limits, snapshots, failed turns, transforms.
//!
//! Each is plain data or a function, and none runs a turn.

pub(crate) mod client_permissions;
pub(crate) mod limits;
pub(crate) mod snapshot_policy;
pub(crate) mod state_limit;
pub(crate) mod transform;
pub(crate) mod visibility;

use everturn_core::{Error, Result};

pub use self::client_permissions::ClientPermissions;
pub use self::limits::{Limits, set_limits};
pub use self::snapshot_policy::{SnapshotMoment, SnapshotPolicy};
pub use self::state_limit::STATE_TOO_LARGE;
pub use self::visibility::{SNAPSHOT_NOT_FOUND, STORE_NOT_CONFIGURED};
use crate::{Snapshot, SnapshotStatus};

/// The policy for a message that arrives while tool requests wait for answers.
///
/// A request waits for an answer after a tool asked a person, after the model called a tool of the client,
/// and if the outcome of a call is unknown. An input that answers the requests is never affected.
///
/// A request is reserved for others if the caller may not answer it: it needs a role that the caller does not
/// have, another person, or is the unknown outcome of a call, which operators settle unless the tool sets
/// otherwise. No policy closes an unknown outcome that is reserved, and no message of an operator does: its
/// answer settles it.
///
/// | | the message | the requests |
/// |---|---|---|
/// | `CloseOwn`, the default | the model answers it | are closed as by `CloseAll` |
/// | `CloseAll` | the model answers it | are closed with the answer that the conversation continued |
/// | `Reject` | fails with `FAILED_PRECONDITION` | stay open |
/// | `Ask` | is kept, and read by the model after the answers | stay open, and are put to the client again |
///
/// If a request is reserved for others, `CloseOwn` behaves as `Reject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WhileInterrupted {
    /// Closes requests that the caller may answer, like [`CloseAll`](WhileInterrupted::CloseAll). If one is
    /// reserved for others, the turn fails like with [`Reject`](WhileInterrupted::Reject), and the error
    /// names who may answer.
    #[default]
    CloseOwn,
    /// Adds an answer to each open request, and runs the turn. The text of an added answer is
    /// `not answered: the conversation went on`, and its metadata has `mended`. Added answers are streamed
    /// like answers of tools. If the turn fails, the requests are still open. A caller who may not answer a
    /// request closes it all the same.
    CloseAll,
    /// Fails the turn with `FAILED_PRECONDITION`, and names the open requests. Nothing is kept of the
    /// message.
    Reject,
    /// Ends the turn at once as interrupted, with the requests that are open. The message is part of the
    /// session, with `waiting` in its metadata. Once the requests are answered it comes after the answers, so
    /// that the model reads both.
    Ask,
}

/// The policy for a background run whose worker sends no heartbeats: its process was killed, or its machine
/// failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerLoss {
    /// Another worker that polls for lost runs takes this one over: it continues from the last committed
    /// state with the inputs that are left.
    TakeOver {
        /// How many workers may begin the same work, including the first, before the run has failed. Every
        /// turn that ends while inputs are left counts as progress: the rest of the run then has all attempts
        /// again.
        attempts: u32,
    },
    /// The run is reported as expired and left alone.
    Expire,
}

impl Default for WorkerLoss {
    fn default() -> Self {
        Self::TakeOver { attempts: 3 }
    }
}

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
