//! Rules for reading snapshots: what a reader may see, and what can be resumed.

use std::time::Duration;

use everturn_core::{Context, Error, Exposure, Reason, Result, RuntimeError, Status};
use jiff::Timestamp;

use crate::policy::transform::{StateTransform, shown_state};
use crate::{Clock, SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// There is no such snapshot.
pub const SNAPSHOT_NOT_FOUND: Reason = Reason::new("snapshot-not-found");

/// The agent has no store, so there is nothing to read or to abort.
pub const STORE_NOT_CONFIGURED: Reason = Reason::new("session-store-not-configured");

/// Prepares snapshots for a reader: applies the state transform, and reports an expired run as such.
#[derive(Clone)]
pub(crate) struct Showing {
    pub(crate) transform: Option<StateTransform>,
    pub(crate) liveness: Liveness,
    pub(crate) context: Context,
}

impl Showing {
    /// Returns the time without a heartbeat after which a worker counts as lost.
    pub(crate) fn expiry(&self) -> Duration {
        self.liveness.expiry
    }

    /// Shapes a stored snapshot for a client: its status as of now, no bookkeeping, the state transformed.
    pub(crate) fn shape(&self, mut snapshot: Snapshot) -> Result<Snapshot> {
        if self.liveness.is_expired(&snapshot) {
            snapshot.status = SnapshotStatus::Expired;
        }
        snapshot.updated_at.get_or_insert(snapshot.created_at);
        snapshot.parent_id = snapshot.listed_parent().cloned();
        snapshot.clear_bookkeeping();
        if exposure(&self.context) == Exposure::Public {
            // A stored error holds the operator's text and does not record which part of it is public.
            snapshot.error = snapshot.error.map(withheld);
        }
        if let Some(state) = snapshot.state.take() {
            snapshot.state = shown_state(
                self.transform.as_ref(),
                state,
                snapshot.session_id.as_ref(),
                &self.context,
            )?;
        }
        Ok(snapshot)
    }
}

/// Returns how much of an error the caller may see: all of it, unless the transport has set a limit.
pub(crate) fn exposure(context: &Context) -> Exposure {
    context
        .extension::<Exposure>()
        .map_or(Exposure::Full, |exposure| *exposure)
}

fn withheld(error: RuntimeError) -> RuntimeError {
    let status = error.status.unwrap_or(Status::Unknown);
    Error::new(status, error.message).to_wire(Exposure::Public)
}

/// The rule by which runs expire.
#[derive(Debug, Clone)]
pub(crate) struct Liveness {
    pub(crate) clock: Clock,
    /// The time without a heartbeat after which a run is expired.
    pub(crate) expiry: Duration,
}

impl Liveness {
    /// Returns whether the heartbeat of a run that is in progress is too old. A run without a heartbeat
    /// counts as alive.
    pub(crate) fn is_expired(&self, snapshot: &Snapshot) -> bool {
        let now = self.clock.now();
        let is_silent = |beat: Timestamp| now > beat && now.duration_since(beat).unsigned_abs() > self.expiry;
        snapshot.status.is_under_way() && snapshot.heartbeat_at.is_some_and(is_silent)
    }
}

pub(crate) fn not_found(id: &SnapshotId) -> Error {
    Error::not_found(format!("snapshot '{id}' was not found"))
        .with_reason(SNAPSHOT_NOT_FOUND)
        .with_public()
}

pub(crate) fn nothing_in(session: &SessionId) -> Error {
    Error::not_found(format!("session '{session}' has no snapshot"))
        .with_reason(SNAPSHOT_NOT_FOUND)
        .with_public()
}

/// Checks that a snapshot belongs to a session.
///
/// # Errors
/// `INVALID_ARGUMENT` if it belongs to another one.
pub(crate) fn check_owner(snapshot: &Snapshot, session_id: &SessionId) -> Result<()> {
    if snapshot.session_id.as_ref() == Some(session_id) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "snapshot '{}' does not belong to session '{session_id}'",
        snapshot.snapshot_id
    ))
    .with_public())
}
