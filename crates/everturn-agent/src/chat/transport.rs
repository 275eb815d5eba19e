//! How a chat reaches its agent.

use std::time::Duration;

use everturn_core::{Connection, Context, Result};
use futures::future::BoxFuture;

use crate::run_stream::RunChunks;
use crate::store::StatusStream;
use crate::{
    AgentInit, AgentInput, AgentOutput, AgentStreamChunk, GetSnapshotRequest, Snapshot, SnapshotId,
    SnapshotStatus,
};

/// What an abort found and what it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// The row's status before the attempt.
    pub previous: SnapshotStatus,
    /// The row's status after it.
    pub status: SnapshotStatus,
}

/// The way to an agent, in this process or elsewhere.
pub trait AgentTransport: Send + Sync + 'static {
    /// Opens an invocation.
    fn connect(
        &self,
        init: AgentInit,
        context: &Context,
    ) -> Connection<AgentInput, AgentOutput, AgentStreamChunk>;

    /// Reads a snapshot.
    ///
    /// Fails with `NOT_FOUND` if there is none.
    fn snapshot(&self, request: GetSnapshotRequest, context: Context) -> BoxFuture<'_, Result<Snapshot>>;

    /// Asks a background run to stop; `None` if there is no such run.
    fn abort(&self, id: SnapshotId, context: Context) -> BoxFuture<'_, Result<Option<Abort>>>;

    /// The statuses of a background run as they change, where the way can tell; else it is asked again and again.
    fn watch(&self, id: &SnapshotId, context: &Context) -> Option<StatusStream> {
        let _ = (id, context);
        None
    }

    /// The chunks of a background run from its beginning to its end, where the way can tell.
    fn follow(&self, id: &SnapshotId, context: &Context) -> Option<RunChunks> {
        let _ = (id, context);
        None
    }

    /// How long a run that has expired may yet be taken over by another worker; after that nobody waits for it.
    fn takeover_patience(&self) -> Duration {
        Duration::ZERO
    }
}
