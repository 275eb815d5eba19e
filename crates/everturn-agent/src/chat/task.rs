//! Work that goes on after its client left.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Context, Error, Result};
use futures::StreamExt;
use serde_json::Value;
use tokio::time::Instant;

use super::{AgentReply, AgentTransport, RunWatch};
use crate::{Abort, GetSnapshotRequest, Snapshot, SnapshotId, SnapshotStatus};

/// How often a run is looked at whose status nobody pushes; also how soon an expired one is noticed.
const LOOK: Duration = Duration::from_secs(1);

/// A run in the background. Dropping it changes nothing: the run goes on, and its row's id is all that is needed to
/// find it again.
pub struct AgentTask<S = Value> {
    agent: Arc<dyn AgentTransport>,
    context: Context,
    id: SnapshotId,
    state: PhantomData<fn() -> S>,
}

impl<S> AgentTask<S> {
    /// The run whose row has that id, looked at in `context` through `agent`.
    pub fn new(agent: Arc<dyn AgentTransport>, context: Context, id: SnapshotId) -> Self {
        Self {
            agent,
            context,
            id,
            state: PhantomData,
        }
    }

    /// The row that tells how the run is doing.
    pub fn snapshot_id(&self) -> &SnapshotId {
        &self.id
    }

    /// The row as it is now.
    ///
    /// # Errors
    /// What the store fails with; `NOT_FOUND` if the row is gone.
    pub async fn poll(&self) -> Result<Snapshot> {
        let request = GetSnapshotRequest {
            snapshot_id: Some(self.id.clone()),
            session_id: None,
        };
        self.agent.snapshot(request, self.context.clone()).await
    }

    /// How the run is doing.
    ///
    /// # Errors
    /// As [`AgentTask::poll`].
    pub async fn status(&self) -> Result<SnapshotStatus> {
        Ok(self.poll().await?.status)
    }

    /// Waits until the run is over. A run whose worker went silent is waited for as long as another may take it over.
    ///
    /// # Errors
    /// What the run failed with; `ABORTED` if it was aborted, `UNAVAILABLE` if its worker went silent and no other came
    /// in time; as [`AgentTask::poll`].
    pub async fn wait(&self) -> Result<AgentReply<S>> {
        let mut statuses = self.agent.watch(&self.id, &self.context);
        let mut expired_since = None;
        loop {
            let row = self.poll().await?;
            match row.status {
                SnapshotStatus::Pending => expired_since = None,
                SnapshotStatus::Expired => {
                    let since = *expired_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.agent.takeover_patience() {
                        return AgentReply::from_row(row);
                    }
                }
                _ => return AgentReply::from_row(row),
            }
            let change = async {
                match &mut statuses {
                    Some(statuses) => while statuses.next().await == Some(SnapshotStatus::Pending) {},
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = change => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Watches the run: everything it has streamed since it went to the background, then what comes, to its end.
    ///
    /// Any number may watch; none of them slows the run down. A turn that is cut short with its worker ends in an
    /// `aborted` turn end, and the worker that takes over begins it again. Chunks are kept for some minutes after the
    /// run's end. How the run ended is what [`AgentTask::wait`] says.
    ///
    /// Watching fails with `NOT_FOUND` if there is no such run, and with `UNAVAILABLE` if its worker went silent and no
    /// other came in time.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if runs cannot be watched this way.
    pub fn attach(&self) -> Result<RunWatch<S>> {
        let chunks = self.agent.follow(&self.id, &self.context);
        let chunks =
            chunks.ok_or_else(|| Error::unimplemented("this agent's runs cannot be watched from here"))?;
        Ok(RunWatch::new(chunks))
    }

    /// Asks the run to stop; `None` if its row is gone.
    ///
    /// # Errors
    /// What the store fails with.
    pub async fn abort(&self) -> Result<Option<Abort>> {
        self.agent.abort(self.id.clone(), self.context.clone()).await
    }
}

impl<S> fmt::Debug for AgentTask<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentTask").field(&self.id).finish()
    }
}
