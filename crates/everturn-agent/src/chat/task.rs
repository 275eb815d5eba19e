//! A client's handle on a background run.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use everturn_core::{Context, Error, Result};
use futures::{Stream, StreamExt};
use serde_json::Value;
use tokio::time::Instant;

use super::chunk::TurnText;
use super::{AgentChunk, AgentReply, AgentTransport};
use crate::chat::connection::CustomView;
use crate::storage::session_state::AgentTypes;
use crate::{
    Abort, AgentStreamChunk, CustomState, GetSnapshotRequest, RunChunks, Snapshot, SnapshotId, SnapshotStatus,
};

/// How often a run is polled; with a store that reports changes, how soon an expired run is noticed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A client's handle on a background run. Dropping it leaves the run alone; the id of the run's snapshot is
/// all that is needed to find the run again.
pub struct AgentTask<S = Value, T = Value, O = Value> {
    agent: Arc<dyn AgentTransport>,
    context: Context,
    id: SnapshotId,
    types: AgentTypes<S, T, O>,
}

impl<S, T, O> AgentTask<S, T, O> {
    /// Returns a handle on the run with the snapshot `id`, which `agent` reaches in `context`.
    pub fn new(agent: Arc<dyn AgentTransport>, context: Context, id: SnapshotId) -> Self {
        Self {
            agent,
            context,
            id,
            types: PhantomData,
        }
    }

    /// Returns the id of the run's snapshot.
    pub fn snapshot_id(&self) -> &SnapshotId {
        &self.id
    }

    /// Reads the run's snapshot.
    ///
    /// # Errors
    /// The store's error; `NOT_FOUND` if the snapshot was deleted.
    pub async fn poll(&self) -> Result<Snapshot> {
        let request = GetSnapshotRequest::snapshot(self.id.clone());
        self.agent.snapshot(request, self.context.clone()).await
    }

    /// Reads the run's status.
    ///
    /// # Errors
    /// As [`AgentTask::poll`].
    pub async fn status(&self) -> Result<SnapshotStatus> {
        Ok(self.poll().await?.status)
    }

    /// Waits until the run ends. If its worker went silent, waits as long as another worker may take the run
    /// over.
    ///
    /// # Errors
    /// The run's error; `ABORTED` if it was aborted, `UNAVAILABLE` if its worker went silent and no other
    /// came in time; as [`AgentTask::poll`].
    pub async fn wait(&self) -> Result<AgentReply<S, O>> {
        let mut statuses = self.agent.watch(&self.id, &self.context);
        let mut expired_since = None;
        loop {
            let snapshot = self.poll().await?;
            match snapshot.status {
                status if status.is_under_way() => expired_since = None,
                SnapshotStatus::Expired => {
                    let since = *expired_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.agent.takeover_patience() {
                        return AgentReply::from_snapshot(snapshot);
                    }
                }
                _ => return AgentReply::from_snapshot(snapshot),
            }
            let change = async {
                match &mut statuses {
                    // The snapshot is read after any change, so a missed status does no harm.
                    Some(statuses) => {
                        while statuses.next().await.is_some_and(SnapshotStatus::is_under_way) {}
                    }
                    None => std::future::pending().await,
                }
            };
            // The time limit is needed in both cases: a run whose worker died changes nothing that could be
            // pushed.
            tokio::select! {
                () = change => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Watches the run: streams the chunks that it has sent since it went to the background, then those that
    /// follow, to its end.
    ///
    /// Any number of clients may watch; none of them slows the run down. A turn that is cut short with its
    /// worker ends in an `aborted` turn end, and the worker that takes over begins it again. Chunks are kept
    /// for some minutes after the run's end. [`AgentTask::wait`] returns how the run ended.
    ///
    /// Watching fails with `NOT_FOUND` if the run does not exist, and with `UNAVAILABLE` if its worker went
    /// silent and no other came in time.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if runs cannot be watched this way.
    pub fn attach(&self) -> Result<RunWatch<S, T>> {
        let chunks = self.agent.follow(&self.id, &self.context);
        let chunks =
            chunks.ok_or_else(|| Error::unimplemented("this agent's runs cannot be watched from here"))?;
        Ok(RunWatch::new(chunks))
    }

    /// Aborts the run; `None` if its snapshot was deleted.
    ///
    /// # Errors
    /// The store's error.
    pub async fn abort(&self) -> Result<Option<Abort>> {
        self.agent.abort(self.id.clone(), self.context.clone()).await
    }
}

everturn_core::opaque_debug!(AgentTask<S, T, O>, id);

/// The chunks of a background run: a stream that ends with the run. Dropping it leaves the run alone.
pub struct RunWatch<S, T = Value> {
    chunks: RunChunks,
    custom: CustomView,
    /// The text of the turn so far.
    text: TurnText,
    types: PhantomData<fn() -> (S, T)>,
}

impl<S, T> RunWatch<S, T> {
    pub(super) fn new(chunks: RunChunks) -> Self {
        Self {
            chunks,
            custom: CustomView::default(),
            text: TurnText::default(),
            types: PhantomData,
        }
    }

    /// Waits for the next chunk; `None` after the last.
    pub async fn next(&mut self) -> Option<Result<AgentChunk<S, T>>>
    where
        S: CustomState,
    {
        StreamExt::next(self).await
    }

    fn chunk(&mut self, raw: AgentStreamChunk) -> AgentChunk<S, T> {
        self.custom.take_in(&raw);
        if raw.taken_over {
            self.text.begin();
        }
        let accumulated = self.text.add(&raw);
        if raw.turn_end.is_some() {
            self.text.begin();
        }
        AgentChunk {
            accumulated,
            custom: self.custom.json().cloned(),
            raw,
            types: PhantomData,
        }
    }
}

impl<S: CustomState, T> Stream for RunWatch<S, T> {
    type Item = Result<AgentChunk<S, T>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = this.chunks.poll_next_unpin(cx);
        next.map(|next| next.map(|chunk| chunk.map(|raw| this.chunk(raw))))
    }
}

everturn_core::opaque_debug!(RunWatch<S, T>, text);
