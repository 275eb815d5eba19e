//! The statuses of a snapshot, and the events at which one is taken.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of a snapshot.
///
/// ```text
/// (no snapshot) ── turn end ──► completed
/// (no snapshot) ── detach ────► pending ──► completed | failed | aborted
/// ```
///
/// The three on the right are final: a store refuses to change them. A pending snapshot whose worker went silent is
/// *reported* as `expired`; that status is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SnapshotStatus {
    /// Background work is under way.
    Pending,
    /// The turn, or the background run, ended well. A stored snapshot without a status is completed too.
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
    /// Returns whether a stored snapshot with this status keeps it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Aborted | Self::Failed)
    }
}

/// The event at which a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SnapshotEvent {
    /// A turn ended.
    TurnEnd,
    /// All tool calls of a round were answered, and the model has not seen the answers yet.
    // The wire and stores call a round a tool iteration, and keep that name.
    #[serde(rename = "toolIterationEnd")]
    RoundEnd,
    /// The invocation ended.
    InvocationEnd,
}
