//! Reading an agent's snapshots as its clients may see them.

use std::sync::Arc;

use everturn_core::{Context, Error, Result};

use crate::archive::Archive;
use crate::invocation::Definition;
use crate::reading::{Liveness, STORE_NOT_CONFIGURED, Showing, check_owner, not_found, nothing_in};
use crate::store::{Detail, SessionStore};
use crate::timeline::Line;
use crate::{GetSnapshotRequest, SessionId, Snapshot, SnapshotId};

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
        Showing::new(self.state_transform.clone(), self.liveness(), context.clone())
    }

    /// Which of this agent's runs still have a worker.
    pub(crate) fn liveness(&self) -> Liveness {
        Liveness::new(self.clock.clone(), self.heartbeat.expiry)
    }

    /// The stored conversations of a context's tenant.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if there is no store.
    pub(crate) fn archive(&self, context: &Context) -> Result<Archive> {
        self.require_store()?;
        let store = self.store.as_ref().expect("it was just required");
        Ok(Archive::shown(
            Arc::clone(store),
            self.scope(context),
            self.clock.clone(),
            self.showing(context),
        ))
    }
}
