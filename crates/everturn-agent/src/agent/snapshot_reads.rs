//! Reading an agent's snapshots as its clients see them.

use std::sync::Arc;

use everturn_core::stream_log::StreamLog;
use everturn_core::{Context, Error, Result};

use crate::archive::{Archive, Tenants};
use crate::invocation::Definition;
use crate::policy::visibility::{
    Liveness, STORE_NOT_CONFIGURED, Showing, check_owner, not_found, nothing_in,
};
use crate::storage::stored_session::TenantStore;
use crate::store::{Detail, SessionStore};
use crate::{GetSnapshotRequest, SessionId, Snapshot, SnapshotId};

impl Definition {
    /// Returns the agent's store as the tenant of a context sees it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the agent has no store.
    pub(crate) fn tenant_store(&self, context: &Context) -> Result<TenantStore> {
        Ok(TenantStore::new(self.kept_in()?, self.scope(context)))
    }

    /// Returns all tenants of the agent's store.
    ///
    /// # Errors
    /// As [`Definition::tenant_store`].
    pub(crate) fn tenants(&self) -> Result<Tenants> {
        Ok(Tenants {
            store: self.kept_in()?,
            clock: self.clock.clone(),
            streams: self.stream_logs(),
        })
    }

    fn kept_in(&self) -> Result<Arc<dyn SessionStore>> {
        self.store.clone().ok_or_else(|| {
            Error::failed_precondition(format!(
                "agent '{}' has no store: its clients keep the state",
                self.name
            ))
            .with_reason(STORE_NOT_CONFIGURED)
        })
    }

    /// Returns the logs that hold text of the agent's sessions.
    fn stream_logs(&self) -> Vec<Arc<dyn StreamLog>> {
        let mut logs = self.stream_logs.all();
        logs.push(Arc::clone(&self.run_log));
        logs
    }

    /// Reads a snapshot and transforms it for a client; writes nothing.
    pub(crate) async fn read_snapshot(
        &self,
        request: GetSnapshotRequest,
        context: &Context,
    ) -> Result<Snapshot> {
        let tenant = self.tenant_store(context)?;
        let session_id = request.session_id.and_then(SessionId::given);
        let detail = if request.metadata_only {
            Detail::Metadata
        } else {
            Detail::Whole
        };
        let snapshot = match (request.snapshot_id.and_then(SnapshotId::given), session_id) {
            (Some(id), session_id) => {
                let snapshot = tenant.get(&id, detail).await?.ok_or_else(|| not_found(&id))?;
                if let Some(session_id) = session_id {
                    check_owner(&snapshot, &session_id)?;
                }
                snapshot
            }
            (None, Some(session_id)) => {
                let session = tenant.session(session_id);
                let tip = session.tip(detail).await?;
                let latest = match tip {
                    Some(tip) if tip.is_head() && !request.head => session.latest_listed(detail).await?,
                    tip => tip,
                };
                latest.ok_or_else(|| nothing_in(session.id()))?
            }
            (None, None) => {
                return Err(
                    Error::invalid_argument("a 'snapshotId' or a 'sessionId' is needed").with_public(),
                );
            }
        };
        self.showing(context).shape(snapshot)
    }

    /// Returns how this agent's snapshots are shown to readers in a context.
    pub(crate) fn showing(&self, context: &Context) -> Showing {
        Showing {
            transform: self.state_transform.clone(),
            liveness: self.liveness(),
            context: context.clone(),
        }
    }

    /// Returns the rule by which runs expire.
    pub(crate) fn liveness(&self) -> Liveness {
        Liveness {
            clock: self.clock.clone(),
            expiry: self.heartbeat.expiry,
        }
    }

    /// Returns the archive of a context's tenant.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if there is no store.
    pub(crate) fn archive(&self, context: &Context) -> Result<Archive> {
        Ok(Archive {
            tenant: self.tenant_store(context)?,
            clock: self.clock.clone(),
            showing: Some(self.showing(context)),
            custom_schema: self.custom_schema.clone(),
            timeline: self.timeline,
            is_named: context.has_named_tenant(),
            streams: self.stream_logs(),
        })
    }
}
