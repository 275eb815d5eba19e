//! The handle of whoever writes a stream.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use async_trait::async_trait;
use everturn_core::Result;
use everturn_core::stream_log::{JsonText, Position, StreamWriter};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::live::{Live, Told};
use super::rows::End;
use super::stopped;
use super::thread::Job;

#[derive(Debug)]
pub(super) struct SqliteStreamWriter {
    live: Arc<Live>,
    jobs: Sender<Job>,
    is_finished: bool,
}

impl SqliteStreamWriter {
    pub(super) fn new(live: Arc<Live>, jobs: Sender<Job>) -> Self {
        Self {
            live,
            jobs,
            is_finished: false,
        }
    }
}

#[async_trait]
impl StreamWriter for SqliteStreamWriter {
    async fn append(&self, chunk: JsonText) -> Result<Position> {
        let (position, told) = self.live.push(chunk).await?;
        if told == Told::NotYet {
            let job = Job::Write(Arc::clone(&self.live));
            self.jobs.send(job).map_err(|_| stopped())?;
        }
        Ok(position)
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
        self.jobs.send(job).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    fn stop_requested(&self) -> CancellationToken {
        self.live.stop.clone()
    }
}

impl Drop for SqliteStreamWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            let job = Job::Finish {
                live: Arc::clone(&self.live),
                end: End::Lost,
                reply: None,
            };
            // If the thread has ended, it has ended the stream.
            let _ = self.jobs.send(job);
        }
    }
}
