//! The connection between a chat and its agent.
//!
//! Chats, turns, tasks and interrupts are implemented once, on top of this trait, for agents of this process
//! and of other machines. The conformance cases run over both.

use std::time::Duration;

use everturn_core::{Connection, Context, Emitter, Result};
use futures::future::BoxFuture;

use crate::runs::run_stream::RunChunks;
use crate::store::StatusStream;
use crate::{
    AgentInit, AgentInput, AgentOutput, AgentStreamChunk, GetSnapshotRequest, Snapshot, SnapshotId,
    SnapshotStatus, StateManagement,
};

/// The outcome of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// The status of the run's snapshot before the abort.
    pub previous: SnapshotStatus,
    /// The status of the run's snapshot after the abort.
    pub status: SnapshotStatus,
}

/// A connection between a chat and an agent, in this process or on another machine.
pub trait AgentTransport: Send + Sync + 'static {
    /// Opens an invocation.
    fn connect(
        &self,
        init: AgentInit,
        context: &Context,
    ) -> Connection<AgentInput, AgentOutput, AgentStreamChunk>;

    /// Runs an invocation of one input and sends its chunks to `emitter`. Dropping the future cancels the
    /// work.
    ///
    /// A transport in this process does the work in the caller's task; by default it is done over a
    /// [connection](AgentTransport::connect).
    fn run(
        &self,
        init: AgentInit,
        input: AgentInput,
        emitter: Emitter<AgentStreamChunk>,
        context: &Context,
    ) -> BoxFuture<'static, Result<AgentOutput>> {
        let mut connection = self.connect(init, context);
        Box::pin(async move {
            // An invocation that was refused takes no input; its output holds the reason.
            let _ = connection.send(input).await;
            connection.close();
            let mut chunks = connection.receive();
            while let Some(chunk) = chunks.next().await {
                emitter.send(chunk).await?;
            }
            connection.into_output().await
        })
    }

    /// Reads a snapshot.
    ///
    /// Fails with `NOT_FOUND` if there is none.
    fn snapshot(&self, request: GetSnapshotRequest, context: Context) -> BoxFuture<'_, Result<Snapshot>>;

    /// Aborts a background run; `None` if the run does not exist.
    fn abort(&self, id: SnapshotId, context: Context) -> BoxFuture<'_, Result<Option<Abort>>>;

    /// Streams the statuses of a background run as they change; `None` if the transport cannot, and the run
    /// is then polled.
    fn watch(&self, id: &SnapshotId, context: &Context) -> Option<StatusStream> {
        let _ = (id, context);
        None
    }

    /// Streams the chunks of a background run from its beginning to its end; `None` if the transport cannot.
    fn follow(&self, id: &SnapshotId, context: &Context) -> Option<RunChunks> {
        let _ = (id, context);
        None
    }

    /// Returns who keeps the agent's sessions; `None` if that is not known.
    fn state_management(&self) -> Option<StateManagement> {
        None
    }

    /// Returns how long an expired run may yet be taken over. After that time, waiting for the run fails.
    fn takeover_patience(&self) -> Duration {
        Duration::ZERO
    }
}
