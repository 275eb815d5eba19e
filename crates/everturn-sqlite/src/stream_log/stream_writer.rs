//! The writer of a stream.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::Result;
use everturn_core::stream_log::{JsonText, Position, StoredError, StreamSubject, StreamWriter};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::live::{Live, Pushed, Queued};
use super::rows::End;
use super::thread::Job;
use super::{SqliteStreamLog, stopped};

#[derive(Debug)]
pub(super) struct SqliteStreamWriter {
    live: Arc<Live>,
    log: SqliteStreamLog,
    is_finished: bool,
}

impl SqliteStreamWriter {
    pub(super) fn new(live: Arc<Live>, log: SqliteStreamLog) -> Self {
        Self {
            live,
            log,
            is_finished: false,
        }
    }
}

#[async_trait]
impl StreamWriter for SqliteStreamWriter {
    async fn append(&self, chunk: JsonText) -> Result<Position> {
        let live = Arc::clone(&self.live);
        let (job, outcome) = match self.live.push(chunk).await? {
            Pushed::Added(position, Queued::Already) => return Ok(position),
            Pushed::Added(position, Queued::NotYet) => (Job::Write(live), Ok(position)),
            Pushed::TooLarge(error) => {
                let end = End::Failed(StoredError::from(&error));
                let reply = None;
                (Job::Finish { live, end, reply }, Err(error))
            }
        };
        self.log.send(job)?;
        outcome
    }

    async fn finish(mut self: Box<Self>, outcome: Result<JsonText>) -> Result<()> {
        if let Some(refusal) = self.live.refusal() {
            return Err(refusal);
        }
        let (reply, answer) = oneshot::channel();
        let job = Job::Finish {
            live: Arc::clone(&self.live),
            end: End::of(outcome),
            reply: Some(reply),
        };
        self.is_finished = true;
        self.log.send(job)?;
        answer.await.map_err(|_| stopped())?
    }

    async fn about(&self, subject: &StreamSubject) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let job = Job::About {
            live: Arc::clone(&self.live),
            subject: subject.clone(),
            reply,
        };
        self.log.send(job)?;
        answer.await.map_err(|_| stopped())?
    }

    fn stop_requested(&self) -> CancellationToken {
        self.live.stop.clone()
    }
}

impl Drop for SqliteStreamWriter {
    fn drop(&mut self) {
        // A stream that has ended was ended by the thread, or the thread was queued to end it.
        if !self.is_finished && self.live.refusal().is_none() {
            let job = Job::Finish {
                live: Arc::clone(&self.live),
                end: End::Lost,
                reply: None,
            };
            // If the thread has ended, it has ended the stream too.
            let _ = self.log.send(job);
        }
    }
}
