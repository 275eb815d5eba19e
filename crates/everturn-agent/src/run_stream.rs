//! Watching a background run: its chunks as they come, across the workers that run it.

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

/// How often a run is looked at whose stream is not there: it has sent nothing yet, or another worker has it.
const LOOK: Duration = Duration::from_millis(100);

/// No run is looked for under more claims than this.
const MOST_EPOCHS: u64 = 64;

/// What all background runs that are under way may take in memory where no log was given.
const MEMORY: usize = 64 * 1024 * 1024;

/// The log of an agent that was given none: what is watched is watched in this process.
pub(crate) fn own_log() -> Arc<dyn StreamLog> {
    Arc::new(MemoryStreamLog::options().max_bytes(MEMORY).build())
}

/// The stream of one worker's claim on a run: whoever takes over begins a new one.
pub(crate) fn stream_key(scope: &Scope, id: &SnapshotId, epoch: u64) -> StreamKey {
    StreamKey::new(scope.as_str(), format!("run/{id}/{epoch}"))
}

/// A run to be followed, and by whom.
pub(crate) struct Followed {
    pub(crate) tenant: TenantStore,
    pub(crate) log: Arc<dyn StreamLog>,
    pub(crate) id: SnapshotId,
    /// Tells when the run's worker counts as gone.
    pub(crate) liveness: Liveness,
    /// For how long after that another may yet take the run over.
    pub(crate) patience: Duration,
}

/// Follows a run to its end: claim by claim, each from its beginning, so that everybody is shown the same.
pub(crate) fn follow(run: Followed) -> RunChunks {
    let follower = Follower {
        run,
        epoch: 0,
        entries: None,
        ready: VecDeque::new(),
        expired_since: None,
        is_complete: false,
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
    /// The claim whose stream was read last.
    epoch: u64,
    entries: Option<Entries>,
    ready: VecDeque<AgentStreamChunk>,
    /// Since when the run is seen without a worker.
    expired_since: Option<Instant>,
    /// Whether the worker of the last claim said that there is no more.
    is_complete: bool,
    over: bool,
}

/// Where a run stands.
enum Standing {
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
            // A worker that could not write the run's end has not ended it: the row knows.
            StreamEvent::Done(_) => {
                self.entries = None;
                self.is_complete = true;
            }
            StreamEvent::Failed(error) if error.is(WRITER_LOST) => {
                self.entries = None;
                // Whatever the lost worker was in the middle of is begun anew by the next.
                self.ready.push_back(AgentStreamChunk::turn_end(TurnEnd {
                    snapshot_id: None,
                    finish_reason: Some(AgentFinishReason::Aborted),
                }));
            }
            StreamEvent::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Finds the next stream of the run, or its end.
    async fn find(&mut self) -> Result<()> {
        let (latest, is_over) = match self.standing().await? {
            Standing::Pending { epoch } => {
                self.is_complete = false;
                (epoch, false)
            }
            // The row no longer says how many workers it took.
            Standing::Over => (MOST_EPOCHS, true),
        };
        if !(is_over && self.is_complete) {
            for epoch in self.epoch + 1..=latest {
                if self.open(epoch).await? {
                    return Ok(());
                }
            }
        }
        if is_over {
            self.over = true;
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
        Ok(())
    }

    /// Begins to read the stream of a claim; says whether there is one.
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

    async fn standing(&mut self) -> Result<Standing> {
        let Followed { tenant, id, .. } = &self.run;
        let row = tenant.get(id, Detail::Metadata).await?;
        let row = row.ok_or_else(|| not_found(id))?;
        if row.status.is_final() {
            return Ok(Standing::Over);
        }
        if !self.run.liveness.is_expired(&row) {
            self.expired_since = None;
        } else if self.expired_since.get_or_insert_with(Instant::now).elapsed() >= self.run.patience {
            return Err(Error::unavailable(format!("the worker of run '{id}' went silent")).with_public());
        }
        match row.lease()? {
            Some(lease) => Ok(Standing::Pending { epoch: lease.epoch() }),
            None => Err(Error::failed_precondition(format!(
                "run '{id}' was begun by a worker that shows nothing"
            ))
            .with_public()),
        }
    }
}
