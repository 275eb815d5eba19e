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
pub(crate) mod while_interrupted;
pub(crate) mod worker_loss;

pub use self::client_permissions::ClientPermissions;
pub use self::failed_turns::FailedTurns;
pub use self::limits::{Limits, set_limits};
pub use self::snapshot_policy::{SnapshotMoment, SnapshotPolicy};
pub use self::state_limit::STATE_TOO_LARGE;
pub use self::visibility::{SNAPSHOT_NOT_FOUND, STORE_NOT_CONFIGURED};
pub use self::while_interrupted::WhileInterrupted;
pub use self::worker_loss::WorkerLoss;
