//! The writer of a stream, and the task that brings its chunks to the database.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::stream_log::{
    JsonText, Position, StoredError, StreamEvent, StreamKey, StreamSubject, StreamWriter, erased, writer_lost,
};
use everturn_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::live::Live;
use super::rows::{self, Written};
use super::stream_options::PostgresStreamLogOptions;
use crate::connection::Database;

#[derive(Debug)]
pub(super) struct Writer {
    db: Arc<Database>,
    live: Arc<Live>,
    /// Answered when everything is in the database.
    finished: Option<oneshot::Receiver<Result<()>>>,
}

impl Writer {
    /// Starts the task. It ends after it has written the stream's end, which comes with the writer's at the
    /// latest.
    pub(super) fn start(
        db: Arc<Database>,
        key: StreamKey,
        live: Arc<Live>,
        options: PostgresStreamLogOptions,
        streams: Arc<Mutex<HashMap<StreamKey, Arc<Live>>>>,
    ) -> Self {
        let (reply, finished) = oneshot::channel();
        let task = Task {
            db: Arc::clone(&db),
            live: Arc::clone(&live),
            options,
        };
        tokio::spawn(async move {
            let outcome = task.run().await;
            task.live.set_final();
            streams.lock().remove(&key);
            // Nobody waits if the writer was dropped.
            let _ = reply.send(outcome);
        });
        Self {
            db,
            live,
            finished: Some(finished),
        }
    }
}

#[async_trait]
impl StreamWriter for Writer {
    async fn append(&self, chunk: JsonText) -> Result<Position> {
        self.live.push(chunk)
    }

    async fn finish(mut self: Box<Self>, outcome: Result<JsonText>) -> Result<()> {
        let end = match outcome {
            Ok(output) => StreamEvent::Done(output),
            Err(error) => StreamEvent::Failed(StoredError::from(&error).into()),
        };
        self.live.end(end)?;
        match self.finished.take() {
            Some(finished) => finished
                .await
                .map_err(|_| Error::unavailable("the runtime of the stream's writer has ended"))?,
            None => Ok(()),
        }
    }

    async fn about(&self, subject: &StreamSubject) -> Result<()> {
        let noted = rows::note(&self.db, self.live.row, subject).await;
        if noted.map_err(|fault| fault.into_error(&self.db.place))? {
            Ok(())
        } else {
            Err(erased())
        }
    }

    fn stop_requested(&self) -> CancellationToken {
        self.live.stop.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A stream that was finished stays as it is.
        let _ = self.live.end(StreamEvent::Failed(writer_lost()));
    }
}

struct Task {
    db: Arc<Database>,
    live: Arc<Live>,
    options: PostgresStreamLogOptions,
}

impl Task {
    async fn run(&self) -> Result<()> {
        let mut news = self.live.news();
        let mut looked = Instant::now();
        let mut renewed = Instant::now();
        let mut flushed: Option<Instant> = None;
        loop {
            // Marked before it is looked for, so that what comes in between is news.
            news.mark_unchanged();
            let unwritten = self.live.unwritten();
            let is_due = renewed.elapsed() >= self.options.lease / 3;
            let looks = looked.elapsed() >= self.options.poll;
            let (chunks, ends) = (unwritten.chunks.len(), unwritten.end.is_some());
            let writes = chunks > 0 || ends || is_due;
            if writes || looks {
                let row = self.live.row;
                if chunks > 0 {
                    flushed = Some(Instant::now());
                }
                let written = if writes {
                    rows::write(&self.db, row, &unwritten, self.options.now(), self.options.lease).await
                } else {
                    // A stream that is silent for long, such as a background run's, leaves nothing to vacuum.
                    rows::look(&self.db, row).await
                };
                match written.map_err(|fault| fault.into_error(&self.db.place)) {
                    Ok(Written::Kept { stopped }) => {
                        self.live.written(chunks);
                        looked = Instant::now();
                        if writes {
                            renewed = looked;
                        }
                        if stopped {
                            self.live.stop.cancel();
                        }
                        if ends {
                            return Ok(());
                        }
                    }
                    Ok(Written::Fenced) => {
                        let fenced = Error::failed_precondition(
                            "the stream was ended by another process, which took its writer for dead",
                        );
                        // If it has ended here too, its writer waits for this answer.
                        let _ = self.live.end(StreamEvent::Failed(fenced.clone()));
                        return Err(fenced);
                    }
                    Err(error) => {
                        let _ = self.live.end(StreamEvent::Failed(error.clone()));
                        return Err(error);
                    }
                }
                continue;
            }
            tokio::select! {
                changed = news.changed() => {
                    // The end of a stream, and the first event after a pause, are written at once; other
                    // events wait for the next write.
                    if let Some(flushed) = flushed
                        && changed.is_ok()
                        && !self.live.has_ended()
                    {
                        tokio::time::sleep_until(flushed + self.options.flush).await;
                    }
                }
                () = tokio::time::sleep(self.options.poll) => {}
            }
        }
    }
}
