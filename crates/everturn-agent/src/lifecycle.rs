//! The statuses of a snapshot, and the events at which one is taken.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a snapshot is in its life.
///
/// ```text
/// (no row) ── turn end ──► completed
/// (no row) ── detach ────► pending ──► completed | failed | aborted
/// ```
///
/// The three on the right are final: a store never changes them again. `expired` is what a pending row whose worker
/// went silent is *reported* as; it is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SnapshotStatus {
    /// Background work is under way.
    Pending,
    /// The turn, or the background run, ended well. Also what a row without a status is.
    #[default]
    Completed,
    /// The background run was aborted.
    Aborted,
    /// The background run failed.
    Failed,
    /// The background run's worker has gone silent.
    Expired,
}

impl SnapshotStatus {
    /// Whether a stored row with this status never changes again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Aborted | Self::Failed)
    }
}

/// What a snapshot was taken at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SnapshotEvent {
    /// A turn ended.
    TurnEnd,
    /// All tool calls of one model iteration were answered, and the model has not seen the answers yet.
    ToolIterationEnd,
    /// The invocation ended.
    InvocationEnd,
}
