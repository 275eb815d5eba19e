//! Watching a background run: its chunks as they come, on through takeovers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use everturn_core::stream_log::{
    Entries, MemoryStreamLog, Position, StreamEvent, StreamKey, StreamLog, StreamSubject, WRITER_LOST,
};
use everturn_core::{Error, Result, Status};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::policy::visibility::{Liveness, not_found};
use crate::storage::stored_session::TenantStore;
use crate::store::{Detail, Scope};
use crate::{AgentFinishReason, AgentStreamChunk, SessionId, SnapshotId, TurnEnd};

/// The chunks of a background run.
pub type RunChunks = BoxStream<'static, Result<AgentStreamChunk>>;

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

/// Returns the key under which a run's worker opens the stream, which is erased with the session.
pub(crate) fn stream_key_in(scope: &Scope, session: &SessionId, id: &SnapshotId, epoch: u64) -> StreamKey {
    let subject = StreamSubject::session(scope.as_str(), session.as_str());
    stream_key(scope, id, epoch).about(subject)
}

/// A run to be watched.
pub(crate) struct Followed {
    pub(crate) tenant: TenantStore,
    pub(crate) log: Arc<dyn StreamLog>,
    pub(crate) id: SnapshotId,
    /// The polls of the agent's runs, which their watchers share.
    pub(crate) polls: Arc<RunPolls>,
    /// The rule that determines whether the run has expired.
    pub(crate) liveness: Liveness,
    /// How long after its expiry the run may yet be taken over.
    pub(crate) patience: Duration,
}

/// Streams the chunks of a run to its end: epoch by epoch, each from its beginning, so that all watchers see
/// the same.
pub(crate) fn follow(run: Followed) -> RunChunks {
    let poll = run.polls.join(run.tenant.scope(), &run.id);
    let follower = Follower {
        run,
        poll,
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
    poll: RunPoll,
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
    Pending { epoch: u64, is_expired: bool },
    Over,
}

impl Followed {
    /// Reads the state of the run for all of its watchers.
    async fn look(&self) -> Found {
        let found = async {
            let RunState::Pending { epoch, is_expired } = self.state().await? else {
                return Ok::<_, Error>(Found::End);
            };
            Ok(Found::Pending {
                epoch,
                is_expired,
                has_stream: self.open(epoch).await?.is_some(),
            })
        };
        found.await.unwrap_or(Found::End)
    }

    /// Opens the stream of an epoch, if there is one.
    async fn open(&self, epoch: u64) -> Result<Option<Entries>> {
        let key = stream_key(self.tenant.scope(), &self.id, epoch);
        match self.log.read(&key, Position::START).await {
            Ok(entries) => Ok(Some(entries)),
            Err(error) if error.status() == Status::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn state(&self) -> Result<RunState> {
        let Self { tenant, id, .. } = self;
        let snapshot = tenant.get(id, Detail::Metadata).await?;
        let snapshot = snapshot.ok_or_else(|| not_found(id))?;
        if snapshot.status.is_final() {
            return Ok(RunState::Over);
        }
        match snapshot.lease()? {
            Some(lease) => Ok(RunState::Pending {
                epoch: lease.epoch(),
                is_expired: self.liveness.is_expired(&snapshot),
            }),
            None => Err(Error::failed_precondition(format!(
                "run '{id}' was started by a worker that does not stream its chunks"
            ))
            .with_public()),
        }
    }
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
            // The run may still be pending: its worker may have been unable to write the end. The snapshot
            // decides.
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

    /// Finds the next stream of the run, or its end, or waits until there may be one.
    async fn find(&mut self) -> Result<()> {
        let state = self.run.state().await?;
        let (latest, is_over) = match state {
            RunState::Pending { epoch, is_expired } => {
                self.is_complete = false;
                self.note_expiry(is_expired)?;
                (epoch, false)
            }
            // The snapshot of a run that has ended no longer holds the epoch.
            RunState::Over => (MOST_EPOCHS, true),
        };
        if !(is_over && self.is_complete) {
            // A worker that sent nothing has no stream, so an epoch may be missing.
            for epoch in self.epoch + 1..=latest {
                if let Some(entries) = self.run.open(epoch).await? {
                    self.entries = Some(entries);
                    self.epoch = epoch;
                    self.is_complete = false;
                    if std::mem::take(&mut self.is_broken_off) {
                        self.ready.push_back(AgentStreamChunk::taken_over());
                    }
                    return Ok(());
                }
            }
        }
        match state {
            RunState::Over => {
                self.over = true;
                if std::mem::take(&mut self.is_broken_off) {
                    self.ready.push_back(AgentStreamChunk::turn_end(TurnEnd {
                        finish_reason: Some(AgentFinishReason::Aborted),
                        ..TurnEnd::default()
                    }));
                }
            }
            RunState::Pending { epoch, is_expired } => {
                let known = Found::Pending {
                    epoch,
                    is_expired,
                    // One that was read to its end may have expired meanwhile.
                    has_stream: self.epoch == epoch && self.run.open(epoch).await?.is_some(),
                };
                let given_up = self.expired_since.map(|since| since + self.run.patience);
                wait(&self.poll, &self.run, &known, given_up).await;
            }
        }
        Ok(())
    }

    /// # Errors
    /// `UNAVAILABLE` if the run has been expired for longer than it may yet be taken over.
    fn note_expiry(&mut self, is_expired: bool) -> Result<()> {
        if !is_expired {
            self.expired_since = None;
        } else if self.expired_since.get_or_insert_with(Instant::now).elapsed() >= self.run.patience {
            let id = &self.run.id;
            return Err(Error::unavailable(format!("the worker of run '{id}' went silent")).with_public());
        }
        Ok(())
    }
}

/// Waits until a look at the run finds something else, or an expired run is given up.
async fn wait(poll: &RunPoll, run: &Followed, known: &Found, given_up: Option<Instant>) {
    let patience = async {
        match given_up {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = poll.changed(known, || run.look()) => {}
        () = patience => {}
    }
}

/// The time between two polls of a run.
const POLL: Duration = Duration::from_millis(100);

type Key = (Scope, SnapshotId);

/// The polls of an agent's runs. A run without watchers has none.
///
/// A run that has no stream yet, or is being taken over, can only be polled. Its watchers share one poll: one
/// of them polls, and the others wait until it finds something else than they did. If that one leaves, the
/// next takes its place. So there is no task that outlives the watchers, and a thousand of them cost what one
/// does.
#[derive(Debug, Default)]
pub(crate) struct RunPolls(Mutex<HashMap<Key, (usize, Arc<Poll>)>>);

/// The poll of one run.
#[derive(Debug)]
struct Poll {
    /// The result of the last look, by any watcher.
    found: watch::Sender<Option<Found>>,
    /// Held by the watcher that polls.
    polling: tokio::sync::Mutex<()>,
}

/// The result of a look at a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The run has ended, or cannot be read: every watcher reads the outcome itself.
    End,
    Pending {
        epoch: u64,
        is_expired: bool,
        /// Whether the worker of this epoch has sent anything.
        has_stream: bool,
    },
}

/// A watcher's share in the poll of a run.
#[derive(Debug)]
pub(crate) struct RunPoll {
    polls: Arc<RunPolls>,
    key: Key,
    poll: Arc<Poll>,
}

impl RunPolls {
    /// Joins the poll of a run.
    pub(crate) fn join(self: &Arc<Self>, scope: &Scope, id: &SnapshotId) -> RunPoll {
        let key = (scope.clone(), id.clone());
        let mut polls = self.0.lock();
        let (watchers, poll) = polls.entry(key.clone()).or_insert_with(|| {
            let poll = Poll {
                found: watch::Sender::new(None),
                polling: tokio::sync::Mutex::new(()),
            };
            (0, Arc::new(poll))
        });
        *watchers += 1;
        let poll = Arc::clone(poll);
        drop(polls);
        RunPoll {
            polls: Arc::clone(self),
            key,
            poll,
        }
    }
}

impl RunPoll {
    /// Waits until a look at the run finds something else than this watcher did.
    pub(crate) async fn changed<F: Future<Output = Found>>(&self, known: &Found, look: impl Fn() -> F) {
        // The watcher has looked later than the one that published the current value.
        self.publish(known.clone());
        let mut news = self.poll.found.subscribe();
        let polling = async {
            let _polling = self.poll.polling.lock().await;
            loop {
                tokio::time::sleep(POLL).await;
                self.publish(look().await);
            }
        };
        tokio::select! {
            biased;
            // Cannot fail: this watcher holds the sender.
            _ = news.wait_for(|found| found.as_ref().is_some_and(|found| found != known)) => {}
            () = polling => {}
        }
    }

    fn publish(&self, found: Found) {
        self.poll.found.send_if_modified(|published| {
            let is_news = published.as_ref() != Some(&found);
            *published = Some(found);
            is_news
        });
    }
}

impl Drop for RunPoll {
    fn drop(&mut self) {
        let mut polls = self.polls.0.lock();
        if let Some((watchers, _)) = polls.get_mut(&self.key) {
            *watchers -= 1;
            if *watchers == 0 {
                polls.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    fn pending(has_stream: bool) -> Found {
        Found::Pending {
            epoch: 1,
            is_expired: false,
            has_stream,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_thousand_watchers_share_one_poll_and_all_are_woken() {
        let polls = Arc::new(RunPolls::default());
        let (looks, has_stream) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let watchers = (0..2_000).map(|_| {
            let run = polls.join(&Scope::default(), &"run".into());
            let (looks, has_stream) = (Arc::clone(&looks), Arc::clone(&has_stream));
            async move {
                run.changed(&pending(false), || async {
                    looks.fetch_add(1, Ordering::SeqCst);
                    pending(has_stream.load(Ordering::SeqCst))
                })
                .await;
            }
        });
        let silence = POLL * 50;

        let mut watching = std::pin::pin!(join_all(watchers));
        let silent = tokio::time::timeout(silence, watching.as_mut()).await;
        let looks_in_silence = looks.load(Ordering::SeqCst);
        has_stream.store(true, Ordering::SeqCst);
        watching.await;

        assert!(silent.is_err());
        assert!(looks_in_silence <= 51, "{looks_in_silence} looks at a silent run");
        assert!(polls.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn another_watcher_polls_when_the_one_that_did_has_left() {
        let polls = Arc::new(RunPolls::default());
        let join = || polls.join(&Scope::default(), &"run".into());
        let (first, second) = (join(), join());
        let never = || async { pending(false) };
        let mut polling = Box::pin(async move { first.changed(&pending(false), never).await });
        assert!(tokio::time::timeout(POLL * 3, polling.as_mut()).await.is_err());
        let known = pending(false);
        let mut waiting = std::pin::pin!(second.changed(&known, || async { Found::End }));
        assert!(tokio::time::timeout(POLL * 3, waiting.as_mut()).await.is_err());

        drop(polling);

        waiting.await;
    }
}
