//! Watching a background run: its chunks as they come, on through takeovers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::stream_log::{
    Entries, MemoryStreamLog, Position, StreamEvent, StreamKey, StreamLog, WRITER_LOST,
};
use everturn_core::{Error, Result, Status};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::Instant;

use crate::reading::{Liveness, not_found};
use crate::store::{Detail, Scope};
use crate::stored_session::TenantStore;
use crate::{AgentFinishReason, AgentStreamChunk, SnapshotId, TurnEnd};

/// The chunks of a background run.
pub type RunChunks = BoxStream<'static, Result<AgentStreamChunk>>;

/// The time between two polls of a run without a stream: it has sent nothing yet, or is being taken over.
const POLL: Duration = Duration::from_millis(100);

/// The highest epoch whose stream is looked up.
const MOST_EPOCHS: u64 = 64;

/// The memory that the streams of all background runs of an agent may take, unless the agent is given a log.
const MEMORY: usize = 64 * 1024 * 1024;

/// Creates the log of an agent that was given none. Its runs can be watched in this process only.
pub(crate) fn own_log() -> Arc<dyn StreamLog> {
    Arc::new(MemoryStreamLog::options().max_bytes(MEMORY).build())
}

/// Returns the key of a run's stream in one epoch. A worker that takes the run over begins a new stream.
pub(crate) fn stream_key(scope: &Scope, id: &SnapshotId, epoch: u64) -> StreamKey {
    StreamKey::new(scope.as_str(), format!("run/{id}/{epoch}"))
}

/// A run to be watched.
pub(crate) struct Followed {
    pub(crate) tenant: TenantStore,
    pub(crate) log: Arc<dyn StreamLog>,
    pub(crate) id: SnapshotId,
    /// Tells whether the run has expired.
    pub(crate) liveness: Liveness,
    /// How long after its expiry the run may yet be taken over.
    pub(crate) patience: Duration,
}

/// Streams the chunks of a run to its end: epoch by epoch, each from its beginning, so that all watchers see the same.
pub(crate) fn follow(run: Followed) -> RunChunks {
    let follower = Follower {
        run,
        epoch: 0,
        entries: None,
        ready: VecDeque::new(),
        expired_since: None,
        is_complete: false,
        is_broken_off: false,
        over: false,
    };
    futures::stream::unfold(follower, |mut follower| async move {
        let next = follower.next().await?;
        Some((next, follower))
    })
    .boxed()
}

struct Follower {
    run: Followed,
    /// The epoch whose stream was read last.
    epoch: u64,
    entries: Option<Entries>,
    ready: VecDeque<AgentStreamChunk>,
    /// When the run was first seen as expired.
    expired_since: Option<Instant>,
    /// Whether the last stream was ended by its worker, not broken off.
    is_complete: bool,
    /// Whether the last stream was broken off, which another worker or the end of the run explains.
    is_broken_off: bool,
    over: bool,
}

/// The state of a run.
enum RunState {
    Pending { epoch: u64 },
    Over,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<AgentStreamChunk>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(Ok(chunk));
            }
            if self.over {
                return None;
            }
            let outcome = match &mut self.entries {
                Some(entries) => match entries.next().await {
                    Some(Ok(entry)) => self.take_in(entry.event),
                    Some(Err(error)) => Err(error),
                    None => Ok(()),
                },
                None => self.find().await,
            };
            if let Err(error) = outcome {
                self.over = true;
                return Some(Err(error));
            }
        }
    }

    fn take_in(&mut self, event: StreamEvent) -> Result<()> {
        match event {
            StreamEvent::Chunk(text) => self.ready.push_back(text.read()?),
            // The run may still be pending: its worker may have been unable to write the end. The snapshot tells.
            StreamEvent::Done(_) => {
                self.entries = None;
                self.is_complete = true;
            }
            StreamEvent::Failed(error) if error.is(WRITER_LOST) => {
                self.entries = None;
                self.is_broken_off = true;
            }
            StreamEvent::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Finds the next stream of the run, or its end.
    async fn find(&mut self) -> Result<()> {
        let (latest, is_over) = match self.state().await? {
            RunState::Pending { epoch } => {
                self.is_complete = false;
                (epoch, false)
            }
            // The snapshot of a run that is over no longer holds the epoch.
            RunState::Over => (MOST_EPOCHS, true),
        };
        if !(is_over && self.is_complete) {
            // A worker that sent nothing has no stream, so an epoch may be missing.
            for epoch in self.epoch + 1..=latest {
                if self.open(epoch).await? {
                    if std::mem::take(&mut self.is_broken_off) {
                        self.ready.push_back(AgentStreamChunk::taken_over());
                    }
                    return Ok(());
                }
            }
        }
        if is_over {
            self.over = true;
            if std::mem::take(&mut self.is_broken_off) {
                self.ready.push_back(AgentStreamChunk::turn_end(TurnEnd {
                    snapshot_id: None,
                    finish_reason: Some(AgentFinishReason::Aborted),
                }));
            }
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
        Ok(())
    }

    /// Opens the stream of an epoch; returns whether there is one.
    async fn open(&mut self, epoch: u64) -> Result<bool> {
        let key = stream_key(self.run.tenant.scope(), &self.run.id, epoch);
        match self.run.log.read(&key, Position::START).await {
            Ok(entries) => {
                self.entries = Some(entries);
                self.epoch = epoch;
                self.is_complete = false;
                Ok(true)
            }
            Err(error) if error.status() == Status::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn state(&mut self) -> Result<RunState> {
        let Followed { tenant, id, .. } = &self.run;
        let snapshot = tenant.get(id, Detail::Metadata).await?;
        let snapshot = snapshot.ok_or_else(|| not_found(id))?;
        if snapshot.status.is_final() {
            return Ok(RunState::Over);
        }
        if !self.run.liveness.is_expired(&snapshot) {
            self.expired_since = None;
        } else if self.expired_since.get_or_insert_with(Instant::now).elapsed() >= self.run.patience {
            return Err(Error::unavailable(format!("the worker of run '{id}' went silent")).with_public());
        }
        match snapshot.lease()? {
            Some(lease) => Ok(RunState::Pending { epoch: lease.epoch() }),
            None => Err(Error::failed_precondition(format!(
                "run '{id}' was begun by a worker that shows nothing"
            ))
            .with_public()),
        }
    }
}
