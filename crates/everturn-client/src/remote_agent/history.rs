//! Reading the snapshots and sessions of a remote agent.

use everturn_agent::archive::{GetSessionRequest, ListSnapshotsRequest, SessionView, SnapshotList};
use everturn_agent::store::{Page, SnapshotQuery};
use everturn_agent::{SNAPSHOT_NOT_FOUND, SessionId, Snapshot};
use everturn_core::{Context, Result, Status};

use super::{RemoteAgent, below};
use crate::request::decoded;

impl<S, T, O> RemoteAgent<S, T, O> {
    /// Returns one page of a session's snapshots, like [`Archive::list`](everturn_agent::Archive::list) in
    /// the agent's own process; an empty page if the session does not exist. Only Everturn servers support
    /// it.
    ///
    /// # Errors
    /// `NOT_FOUND` if the server does not list snapshots; the server's own error.
    pub async fn list_snapshots(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let url = below(&self.routes.run, "listSnapshots");
        let request = ListSnapshotsRequest::from(query.clone());
        let list: SnapshotList = decoded(self.routes.ask(&url, &request, &Context::current()).await?)?;
        Ok(list.into())
    }

    /// Returns a session with its latest snapshot and the additional details of an Everturn server.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session does not exist or the server does not show sessions; the server's own
    /// error.
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
