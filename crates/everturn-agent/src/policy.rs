//! The choices that an agent's definition makes: permissions, limits, snapshots, failed turns, transforms.
//!
//! Each is plain data or a function, and none runs a turn.

pub(crate) mod client_permissions;
pub(crate) mod failed_turns;
pub(crate) mod limits;
pub(crate) mod snapshot_policy;
pub(crate) mod state_limit;
pub(crate) mod transform;
pub(crate) mod visibility;

pub use self::client_permissions::ClientPermissions;
pub use self::failed_turns::FailedTurns;
pub use self::limits::{Limits, set_limits};
pub use self::snapshot_policy::{SnapshotMoment, SnapshotPolicy};
pub use self::state_limit::STATE_TOO_LARGE;
pub use self::visibility::{SNAPSHOT_NOT_FOUND, STORE_NOT_CONFIGURED};

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
