//! Snapshots: stored points of a session, the framework's bookkeeping in them, and how they may change.
//!
//! | file | holds |
//! |---|---|
//! | `bookkeeping` | the framework's own notes in a snapshot |
//! | `lease` | the background run behind a pending snapshot, and its worker |
//! | `open_turn` | the turn in whose middle a snapshot was taken |
//! | `rewind` | the snapshots that a rewind keeps |
//! | `annotation` | labels and notes of people |
//! | `transition` | every way in which a stored snapshot may change, with a table of all cases |
//! | `mutation` | a transition as a store sees it |

mod bookkeeping;
mod lease;
mod mutation;
mod rewind;
mod transition;

use everturn_ai::JsonObject;
use everturn_core::{Error, Result, RuntimeError, TraceParent};
use everturn_macros::wire;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use self::bookkeeping::Bookkeeping;
pub use self::lease::Lease;
pub(crate) use self::lease::{BackgroundRun, OpenTurn};
pub use self::mutation::Mutation;
pub(crate) use self::rewind::Rewind;
pub(crate) use self::transition::Annotation;
pub use self::transition::MAX_LABELS;
pub(crate) use self::transition::{Progress, RUN_OUTPUT, RunEnd, Transition};
use crate::{AgentFinishReason, SessionId, SessionState, SnapshotEvent, SnapshotId, SnapshotStatus};

/// The field of a snapshot that holds the note of the server that ran the turn.
const SERVER_NOTE: &str = "serverNote";

/// The field of a background run's snapshot that names the span of the invocation that became the run.
const ORIGIN: &str = "traceparent";

/// A stored point of a session.
///
/// The *store* makes an id where none is given and keeps the session id of a stored snapshot. The *caller*
/// sets everything else. Fields unknown to this version survive.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The snapshot's id.
    pub snapshot_id: SnapshotId,
    /// The session that the snapshot belongs to. Only snapshots of older peers lack it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub session_id: Option<SessionId>,
    /// The snapshot that this one follows.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub parent_id: Option<SnapshotId>,
    /// When the snapshot was first written. It never changes.
    #[schemars(with = "String")]
    pub created_at: Timestamp,
    /// When the snapshot last changed, heartbeats apart.
    #[schemars(with = "Option<String>")]
    pub updated_at: Option<Timestamp>,
    /// The last heartbeat of a pending snapshot's worker.
    #[schemars(with = "Option<String>")]
    pub heartbeat_at: Option<Timestamp>,
    /// The status.
    #[serde(default, deserialize_with = "status_or_completed")]
    pub status: SnapshotStatus,
    /// How the turn or the run ended.
    pub finish_reason: Option<AgentFinishReason>,
    /// Why the run failed.
    pub error: Option<RuntimeError>,
    /// The snapshot's number in the session, counted from zero.
    pub index: Option<u64>,
    /// The number of the turn, counted from zero over all ancestors of the snapshot.
    pub turn_index: Option<u64>,
    /// The event at which the snapshot was taken.
    pub event: Option<SnapshotEvent>,
    /// Whether a rewind superseded the snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orphaned: bool,
    /// The labels that people put on the snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The note that people wrote on the snapshot.
    pub note: Option<String>,
    /// The session's state at this point; a pending snapshot has none yet.
    pub state: Option<SessionState>,
    /// The framework's own notes. Clients see only the usage among them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub bookkeeping: Bookkeeping,
    /// Fields of other versions.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: JsonObject,
}

impl Snapshot {
    /// Makes a completed snapshot with an id, a session and a creation time, and nothing else.
    pub fn new(snapshot_id: SnapshotId, session_id: SessionId, created_at: Timestamp) -> Self {
        Self {
            snapshot_id,
            session_id: Some(session_id),
            parent_id: None,
            created_at,
            updated_at: None,
            heartbeat_at: None,
            status: SnapshotStatus::Completed,
            finish_reason: None,
            error: None,
            index: None,
            turn_index: None,
            event: None,
            orphaned: false,
            labels: Vec::new(),
            note: None,
            state: None,
            bookkeeping: Bookkeeping::default(),
            extra: JsonObject::new(),
        }
    }

    /// Returns whether a content-addressed snapshot holds the state whose hash is its id.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if it is not content-addressed, or was read without its state.
    pub fn verify(&self) -> Result<bool> {
        let id = &self.snapshot_id;
        if !id.is_content_addressed() {
            return Err(Error::failed_precondition(format!(
                "snapshot '{id}' is not content-addressed and cannot be verified"
            )));
        }
        let Some(state) = &self.state else {
            return Err(Error::failed_precondition(format!(
                "snapshot '{id}' was read without its state: read the whole of it"
            )));
        };
        Ok(SnapshotId::of_state(state)? == *id)
    }

    /// Returns the span of the invocation that became the background run of this snapshot; `None` if no spans
    /// were recorded, or if the snapshot is not that of a run. The spans of later workers and of watchers are
    /// linked to it.
    pub(crate) fn origin(&self) -> Option<TraceParent> {
        TraceParent::parse(self.extra.get(ORIGIN)?.as_str()?)
    }

    pub(crate) fn set_origin(&mut self, span: &TraceParent) {
        self.extra.insert(ORIGIN.to_owned(), span.to_string().into());
    }

    /// Returns the [note](crate::ServerNote) of the server that ran the turn.
    pub fn server_note(&self) -> Option<&Value> {
        self.extra.get(SERVER_NOTE)
    }

    pub(crate) fn set_server_note(&mut self, note: &Value) {
        self.extra.insert(SERVER_NOTE.to_owned(), note.clone());
    }

    /// Returns the sort key of snapshots in a session: the creation time, then the id.
    pub fn position(&self) -> (Timestamp, &SnapshotId) {
        (self.created_at, &self.snapshot_id)
    }
}

/// Reads an empty string as absent: some peers write it for missing values.
fn non_empty<'de, D: Deserializer<'de>, T: From<String>>(
    deserializer: D,
) -> std::result::Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(T::from))
}

fn status_or_completed<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<SnapshotStatus, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        Some(name) if !name.is_empty() => SnapshotStatus::deserialize(name.into_deserializer()),
        _ => Ok(SnapshotStatus::Completed),
    }
}

/// A position in a listing: the snapshot that ended a page. Snapshots written meanwhile do not move it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cursor {
    /// When the snapshot was created.
    #[schemars(with = "String")]
    pub created_at: Timestamp,
    /// The snapshot's id.
    pub snapshot_id: SnapshotId,
}

impl Cursor {
    /// Creates the position of a snapshot.
    pub fn at(snapshot: &Snapshot) -> Self {
        Self {
            created_at: snapshot.created_at,
            snapshot_id: snapshot.snapshot_id.clone(),
        }
    }

    /// Returns the position as a sort key.
    pub fn position(&self) -> (Timestamp, &SnapshotId) {
        (self.created_at, &self.snapshot_id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn snapshots_of_other_peers_are_read_and_unknown_fields_survive() {
        let snapshot = json!({
            "snapshotId": "s1", "parentId": "", "createdAt": "2026-01-02T03:04:05Z", "status": "",
            "state": {"messages": [], "novelty": 1}, "shelf": "top",
        });

        let snapshot: Snapshot = serde_json::from_value(snapshot).unwrap();
        let written = serde_json::to_value(&snapshot).unwrap();

        assert_eq!(snapshot.status, SnapshotStatus::Completed);
        assert_eq!(snapshot.parent_id, None);
        assert_eq!(written["shelf"], "top");
        assert_eq!(written["state"]["novelty"], 1);
        assert_eq!(written["status"], "completed");
    }
}
