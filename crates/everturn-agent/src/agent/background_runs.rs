//! Watching and aborting background runs, in this process and through an action.
//!
//! An abort changes the status of the run's snapshot from `pending` to `aborted`. The worker watches the
//! snapshot and stops. Work that it still completes cannot change the status any more.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Action, ActionType, Context, Emitter, Error, Result, Schema, SpanRecorder};
use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat::output_of;
use crate::invocation::Definition;
use crate::runs::run_stream::{Followed, RunChunks, follow};
use crate::storage::snapshot::Transition;
use crate::store::Detail;
use crate::{
    Abort, AgentFinishReason, AgentOutput, AgentStreamChunk, GetSnapshotRequest, HandOff, Snapshot,
    SnapshotId, SnapshotStatus, WorkerLoss,
};

/// The action that shows an agent's background runs: it streams a run's chunks from the beginning, follows
/// the run, and returns its end.
pub type WatchAction = Action<WatchRequest, AgentOutput, AgentStreamChunk>;

/// A request to watch a background run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchRequest {
    /// The run's snapshot.
    pub snapshot_id: SnapshotId,
}

/// Creates the companion action that shows background runs.
pub(super) fn watch_action(definition: &Arc<Definition>) -> WatchAction {
    let this = Arc::clone(definition);
    Action::streaming(
        ActionType::AGENT_WATCH,
        &definition.name,
        move |request: WatchRequest, context: Context, emitter| {
            let this = Arc::clone(&this);
            async move {
                let showing = context.guard(this.show_run(request.snapshot_id, &context, emitter));
                Ok(tokio::select! {
                    shown = showing => shown,
                    // The server shuts down, so there is nothing to wait for: another process may continue
                    // the run.
                    () = HandOff::requested(&context) => Err(Error::unavailable("the server is shutting down: watch the run again").with_public()),
                }?)
            }
        },
    )
    .with_description(format!("Shows a background run of agent '{}'.", definition.name))
    .with_output_schema(Schema::lenient::<AgentOutput>())
}

impl Definition {
    /// Streams the chunks of a run from its beginning to its end.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the agent has no store.
    pub(crate) fn follow(&self, id: &SnapshotId, context: &Context) -> Result<RunChunks> {
        Ok(follow(Followed {
            tenant: self.tenant_store(context)?,
            log: Arc::clone(&self.run_log),
            id: id.clone(),
            polls: Arc::clone(&self.run_polls),
            liveness: self.liveness(),
            patience: self.takeover_patience(),
        }))
    }

    /// Returns how long an expired run may yet be taken over.
    pub(crate) fn takeover_patience(&self) -> Duration {
        match self.worker_loss {
            WorkerLoss::TakeOver { .. } => self.heartbeat.expiry,
            WorkerLoss::Expire => Duration::ZERO,
        }
    }

    /// Streams a run's chunks and returns its end.
    async fn show_run(
        &self,
        id: SnapshotId,
        context: &Context,
        emitter: Emitter<AgentStreamChunk>,
    ) -> Result<AgentOutput> {
        let id = id.given().ok_or_else(|| {
            Error::invalid_argument("a 'snapshotId' is needed to watch a run").with_public()
        })?;
        let mut chunks = self.follow(&id, context)?;
        let recorder = SpanRecorder::of(context);
        if recorder.ids().is_some() {
            let watched = self.tenant_store(context)?.get(&id, Detail::Metadata).await?;
            if let Some(origin) = watched.and_then(|run| run.origin()) {
                recorder.link(&origin, "watch");
            }
        }
        while let Some(chunk) = chunks.next().await {
            emitter.send(chunk?).await?;
        }
        let request = GetSnapshotRequest::snapshot(id);
        Ok(end_of(self.read_snapshot(request, context).await?))
    }
}

/// Returns the end of a run as the output of a turn.
fn end_of(snapshot: Snapshot) -> AgentOutput {
    let finish_reason = snapshot.finish_reason.or(match snapshot.status {
        SnapshotStatus::Aborted => Some(AgentFinishReason::Aborted),
        SnapshotStatus::Failed => Some(AgentFinishReason::Failed),
        _ => None,
    });
    AgentOutput {
        finish_reason,
        // As in the output of a turn with a store: the state is read from the snapshot.
        state: None,
        ..output_of(snapshot)
    }
}

impl Definition {
    /// Aborts the run of a snapshot; `None` if the snapshot does not exist. A finished run does not change.
    pub(crate) async fn abort_run(&self, id: &SnapshotId, context: &Context) -> Result<Option<Abort>> {
        let tenant = self.tenant_store(context)?;
        if id.as_str().is_empty() {
            return Err(Error::invalid_argument("a snapshot id is needed to abort a run").with_public());
        }
        let abort = Transition::Abort {
            now: self.clock.now(),
        };
        if tenant.change(id, abort).await?.is_some() {
            return Ok(Some(Abort {
                previous: SnapshotStatus::Pending,
                status: SnapshotStatus::Aborted,
            }));
        }
        // The run was not pending, and a final status never changes: this later read sees the status that the
        // abort found.
        let found = tenant.get(id, Detail::Metadata).await?;
        Ok(found.map(|snapshot| Abort {
            previous: snapshot.status,
            status: snapshot.status,
        }))
    }
}
