//! Reading snapshots as clients may see them.

use std::time::Duration;

use everturn_core::{Context, Error, Exposure, Reason, Result, RuntimeError, Status};
use jiff::Timestamp;

use super::Definition;
use crate::journal::OpenTurn;
use crate::lease::RunRecord;
use crate::store::{Detail, SessionStore};
use crate::timeline::{Line, Rewind};
use crate::transform::{StateTransform, shown_state};
use crate::{Clock, GetSnapshotRequest, SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// There is no such snapshot.
pub const SNAPSHOT_NOT_FOUND: Reason = Reason::new("snapshot-not-found");

/// The agent has no store, so there is nothing to read or to abort.
pub const STORE_NOT_CONFIGURED: Reason = Reason::new("session-store-not-configured");

impl<S> Definition<S> {
    /// The store.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if there is none.
    pub(crate) fn require_store(&self) -> Result<&dyn SessionStore> {
        self.store.as_deref().ok_or_else(|| {
            Error::failed_precondition(format!(
                "agent '{}' has no store: its clients keep the state",
                self.name
            ))
            .with_reason(STORE_NOT_CONFIGURED)
        })
    }

    /// Finds a row and shapes it for a client; writes nothing.
    pub(crate) async fn read_snapshot(
        &self,
        request: GetSnapshotRequest,
        context: &Context,
    ) -> Result<Snapshot> {
        let store = self.require_store()?;
        let scope = self.scope(context);
        let session_id = request.session_id.and_then(SessionId::given);
        let row = match (request.snapshot_id.and_then(SnapshotId::given), session_id) {
            (Some(id), session_id) => {
                let row = store
                    .get(&scope, &id, Detail::Whole)
                    .await?
                    .ok_or_else(|| not_found(&id))?;
                if let Some(session_id) = session_id {
                    check_owner(&row, &session_id)?;
                }
                row
            }
            (None, Some(session_id)) => {
                let line = Line {
                    store,
                    scope: &scope,
                    session: &session_id,
                };
                let latest = line.latest(Detail::Whole).await?;
                latest.ok_or_else(|| nothing_in(&session_id))?
            }
            (None, None) => {
                return Err(
                    Error::invalid_argument("a 'snapshotId' or a 'sessionId' is needed").with_public(),
                );
            }
        };
        self.showing(context).row(row)
    }

    /// How this agent's rows are shaped for whoever reads them in a context.
    pub(crate) fn showing(&self, context: &Context) -> Showing {
        Showing {
            transform: self.state_transform.clone(),
            liveness: self.liveness(),
            context: context.clone(),
        }
    }

    /// Which of this agent's runs still have a worker.
    pub(crate) fn liveness(&self) -> Liveness {
        Liveness {
            clock: self.clock.clone(),
            expiry: self.heartbeat.expiry,
        }
    }
}

/// Shapes rows for a reader: what the agent hides stays hidden, and a run whose worker went silent is reported as such.
#[derive(Clone)]
pub(crate) struct Showing {
    transform: Option<StateTransform>,
    liveness: Liveness,
    context: Context,
}

impl Showing {
    pub(crate) fn row(&self, mut row: Snapshot) -> Result<Snapshot> {
        if self.liveness.is_expired(&row) {
            row.status = SnapshotStatus::Expired;
        }
        row.updated_at.get_or_insert(row.created_at);
        RunRecord::clear(&mut row);
        OpenTurn::clear(&mut row);
        Rewind::clear(&mut row);
        if exposure(&self.context) == Exposure::Public {
            // Rows are for operators too, so they hold the whole text and do not say which part of it is public.
            row.error = row.error.map(withheld);
        }
        if let Some(state) = row.state.take() {
            row.state = shown_state(
                self.transform.as_ref(),
                state,
                row.session_id.as_ref(),
                &self.context,
            )?;
        }
        Ok(row)
    }
}

/// How much of an error the caller may see: everything, unless the way to it says otherwise.
pub(crate) fn exposure(context: &Context) -> Exposure {
    context
        .extension::<Exposure>()
        .map_or(Exposure::Full, |exposure| *exposure)
}

fn withheld(error: RuntimeError) -> RuntimeError {
    let status = error.status.unwrap_or(Status::Unknown);
    Error::new(status, error.message).to_wire(Exposure::Public)
}

/// Tells runs that have a worker from those that lost theirs.
#[derive(Debug, Clone)]
pub(crate) struct Liveness {
    clock: Clock,
    expiry: Duration,
}

impl Liveness {
    /// Whether the worker of a pending row has been silent for too long. A row without any sign of life is given the
    /// benefit of the doubt.
    pub(crate) fn is_expired(&self, row: &Snapshot) -> bool {
        let now = self.clock.now();
        let is_silent = |beat: Timestamp| now > beat && now.duration_since(beat).unsigned_abs() > self.expiry;
        row.status == SnapshotStatus::Pending && row.heartbeat_at.is_some_and(is_silent)
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

/// # Errors
/// `INVALID_ARGUMENT` if the row is of another session.
pub(crate) fn check_owner(row: &Snapshot, session_id: &SessionId) -> Result<()> {
    if row.session_id.as_ref() == Some(session_id) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "snapshot '{}' does not belong to session '{session_id}'",
        row.snapshot_id
    ))
    .with_public())
}
