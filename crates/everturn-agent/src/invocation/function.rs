//! The agent's function, running in a task of its own.

use std::time::Duration;

use everturn_core::{Context, Error, Result, catch_panic};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::outbox::{ChunkSignal, Signal};
use crate::AgentResult;

pub(super) struct Function {
    signals: mpsc::UnboundedReceiver<Signal>,
    /// What was found behind a chunk and is no chunk.
    found: Option<Signal>,
    /// Gone once the function has returned.
    task: Option<AbortOnDropHandle<Result<AgentResult>>>,
    /// When a cancelled function is dropped.
    dropped_at: Option<Instant>,
}

/// What the function says.
pub(super) enum Report {
    Signal(Signal),
    Returned(Result<AgentResult>),
}

impl Function {
    pub(super) fn spawn(
        agent: &str,
        running: BoxFuture<'static, Result<AgentResult>>,
        context: Context,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Self {
        let what = format!("agent '{agent}'");
        let work = context.scope(async move { catch_panic(&what, running).await });
        let task = AbortOnDropHandle::new(tokio::spawn(work.in_current_span()));
        Self {
            signals,
            found: None,
            task: Some(task),
            dropped_at: None,
        }
    }

    /// Gives cancelled work this long to end by itself.
    pub(super) fn drop_after(&mut self, grace: Duration) {
        self.dropped_at.get_or_insert(Instant::now() + grace);
    }

    /// A chunk that the function sent right after the last one, if there is one already.
    pub(super) fn next_chunk(&mut self) -> Option<ChunkSignal> {
        match self.signals.try_recv().ok()? {
            Signal::Chunk(signal) => Some(signal),
            other => {
                self.found = Some(other);
                None
            }
        }
    }

    /// The next thing the function says: everything it signalled before it returned, then that it returned.
    pub(super) async fn next(&mut self) -> Report {
        if let Some(signal) = self.found.take() {
            return Report::Signal(signal);
        }
        let Some(task) = &mut self.task else {
            return std::future::pending().await;
        };
        let joined = loop {
            let patience = async {
                match self.dropped_at {
                    Some(moment) => tokio::time::sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(signal) = self.signals.recv() => return Report::Signal(signal),
                joined = &mut *task => break joined,
                () = patience => {
                    // The task is gone when it next yields; what it signals until then still counts.
                    task.abort();
                    self.dropped_at = None;
                }
            }
        };
        self.task = None;
        Report::Returned(
            joined.unwrap_or_else(|_| Err(Error::cancelled("the work was cancelled and did not end"))),
        )
    }
}
