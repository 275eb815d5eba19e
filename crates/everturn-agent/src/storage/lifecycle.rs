//! The statuses of a snapshot, the events at which one is taken, and the reasons for the end of a turn.

use std::fmt;

use everturn_ai::FinishReason;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The status of a snapshot.
///
/// ```text
/// (no snapshot) ── turn end ──► completed | failed | aborted
/// (no snapshot) ── detach ────► pending ──► completed | failed | aborted
///                               pending ──► aborting ──► aborted      (other runtimes)
/// ```
///
/// The three on the right are final: a store refuses to change them. A pending or aborting snapshot whose
/// worker went silent is *reported* as `expired`; that status is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SnapshotStatus {
    /// Background work is in progress.
    Pending,
    /// An abort was recorded, and the worker of another runtime winds down. Everturn reads this status and
    /// never writes it.
    Aborting,
    /// The turn, or the background run, ended well. A stored snapshot without a status is completed too.
    #[default]
    Completed,
    /// The turn or the background run was stopped before its end.
    Aborted,
    /// The turn or the background run failed.
    Failed,
    /// The background run's worker has gone silent.
    Expired,
    /// A status of a newer server. It counts as not final; no store holds it.
    #[schemars(skip)]
    Other(OtherStatus),
}

impl SnapshotStatus {
    const KNOWN: [Self; 6] = [
        Self::Pending,
        Self::Aborting,
        Self::Completed,
        Self::Aborted,
        Self::Failed,
        Self::Expired,
    ];

    /// Returns whether a stored snapshot with this status keeps it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Aborted | Self::Failed)
    }

    /// Returns whether a background run with this status is in progress: running, or winding down after an
    /// abort.
    pub const fn is_under_way(self) -> bool {
        matches!(self, Self::Pending | Self::Aborting | Self::Other(_))
    }

    /// Returns the name of the status on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "pending",
            Self::Aborting => "aborting",
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Other(other) => other.as_str(),
        }
    }

    /// Reads the status that a server returned; a name unknown to this version becomes [`Self::Other`].
    pub fn from_server(name: &str) -> Self {
        Self::named(name).unwrap_or_else(|| Self::Other(OtherStatus::new(name)))
    }

    fn named(name: &str) -> Option<Self> {
        Self::KNOWN.into_iter().find(|status| status.as_str() == name)
    }
}

impl fmt::Display for SnapshotStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for SnapshotStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Fails for a name unknown to this version: stored data must not be misread. See
/// [`SnapshotStatus::from_server`].
impl<'de> Deserialize<'de> for SnapshotStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("'{name}' is not a snapshot status")))
    }
}

/// The name of a snapshot status unknown to this version, up to 23 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OtherStatus {
    length: u8,
    text: [u8; Self::CAPACITY],
}

impl OtherStatus {
    const CAPACITY: usize = 23;

    fn new(name: &str) -> Self {
        let length = name.floor_char_boundary(Self::CAPACITY);
        let mut text = [0; Self::CAPACITY];
        text[..length].copy_from_slice(&name.as_bytes()[..length]);
        Self {
            length: u8::try_from(length).unwrap_or_default(),
            text,
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Debug for OtherStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
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

/// The reason why a turn, a run or an invocation ended: the model's reasons and three of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AgentFinishReason {
    /// The model completed its answer.
    Stop,
    /// The model reached its limit.
    Length,
    /// The model's provider refused.
    Blocked,
    /// A tool waits for an answer from outside.
    Interrupted,
    /// Something else.
    Other,
    /// The run was aborted.
    Aborted,
    /// The client left; the work continues.
    Detached,
    /// The turn or the agent failed.
    Failed,
    /// No reason was given, or one unknown to this version.
    #[serde(other)]
    Unknown,
}

impl AgentFinishReason {
    /// Returns the word for the reason on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Blocked => "blocked",
            Self::Interrupted => "interrupted",
            Self::Other => "other",
            Self::Aborted => "aborted",
            Self::Detached => "detached",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl From<FinishReason> for AgentFinishReason {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop => Self::Stop,
            FinishReason::Length => Self::Length,
            FinishReason::Blocked => Self::Blocked,
            FinishReason::Aborted => Self::Aborted,
            FinishReason::Failed => Self::Failed,
            FinishReason::Interrupted => Self::Interrupted,
            FinishReason::Other => Self::Other,
            FinishReason::Unknown => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_read_as_it_is_written_and_an_unknown_one_only_from_a_server() {
        for status in SnapshotStatus::KNOWN {
            let written = serde_json::to_value(status).unwrap();
            assert_eq!(serde_json::from_value::<SnapshotStatus>(written).unwrap(), status);
            assert_eq!(SnapshotStatus::from_server(status.as_str()), status);
        }

        let stored = serde_json::from_value::<SnapshotStatus>("pausing".into()).unwrap_err();
        let newer = SnapshotStatus::from_server("pausing");
        let long = SnapshotStatus::from_server("a name of more than 23 bytes: ä");

        assert_eq!(stored.to_string(), "'pausing' is not a snapshot status");
        assert_eq!((newer.as_str(), newer.is_final()), ("pausing", false));
        assert_eq!(long.as_str(), "a name of more than 23 ");
        assert!(!SnapshotStatus::Aborting.is_final());
    }
}
