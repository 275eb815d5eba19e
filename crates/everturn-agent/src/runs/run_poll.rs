//! One poll per process and run, whose outcome wakes all watchers of the run.
//!
//! A run that has no stream yet, or is being taken over, can only be polled. Its watchers share one poll: one
//! of them polls, and the others wait until it finds something else than they did. If that one leaves, the
//! next takes its place. So there is no task that outlives the watchers, and a thousand of them cost what one
//! does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::SnapshotId;
use crate::store::Scope;

/// The time between two polls of a run.
const POLL: Duration = Duration::from_millis(100);

type Key = (Scope, SnapshotId);

/// The polls of an agent's runs. A run without watchers has none.
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
