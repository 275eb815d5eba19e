//! Reading what an agent on another machine keeps.

use everturn_agent::archive::{GetSessionRequest, ListSnapshotsRequest, SessionView, SnapshotList};
use everturn_agent::store::{Page, SnapshotQuery};
use everturn_agent::{SNAPSHOT_NOT_FOUND, SessionId, Snapshot};
use everturn_core::{Context, Result, Status};

use super::{RemoteAgent, below};
use crate::request::decoded;

impl<S> RemoteAgent<S> {
    /// One page of a session's snapshots, as [`Archive::list`](everturn_agent::Archive::list) gives them in the agent's
    /// own process; of a session that does not exist, an empty one. Everturn servers have this.
    ///
    /// # Errors
    /// `NOT_FOUND` if the server does not list snapshots; what it refuses with.
    pub async fn list_snapshots(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let url = below(&self.routes.run, "listSnapshots");
        let request = ListSnapshotsRequest::from(query.clone());
        let list: SnapshotList = decoded(self.routes.ask(&url, &request, &Context::current()).await?)?;
        Ok(list.into())
    }

    /// A session as it is now: its latest snapshot, with all that an Everturn server tells of it.
    ///
    /// # Errors
    /// `NOT_FOUND` if nobody has spoken in it, or the server does not show sessions; what it refuses with.
    pub async fn session(&self, session: impl Into<SessionId>) -> Result<SessionView> {
        let url = below(&self.routes.run, "getSession");
        let request = GetSessionRequest {
            session_id: session.into(),
        };
        let view = self.routes.ask(&url, &request, &Context::current()).await;
        decoded(view.map_err(|error| match error.status() {
            Status::NotFound => error.with_reason(SNAPSHOT_NOT_FOUND),
            _ => error,
        })?)
    }
}
