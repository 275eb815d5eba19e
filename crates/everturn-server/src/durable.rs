//! Streamed calls that outlive the connection of whoever made them.
//!
//! The log is the only way from a call to its readers, the first one included. So what a client reads again is what it
//! read before, byte for byte, and a client that reads slowly or not at all holds up nothing.

mod answer;
mod frame;
mod reattachment;

use std::sync::Arc;

use everturn_core::stream_log::{Entries, JsonText, Position, StreamKey, StreamLog, StreamWriter};
use everturn_core::{Connection, Error, Result, Status};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) use self::answer::{stop, stream, unknown};
use self::frame::frames;
use self::reattachment::stream_id;
pub(crate) use self::reattachment::{Reattachment, STREAM_ID};
use crate::call::Call;
use crate::principal::Principal;

/// Runs calls, and finds them again.
pub(crate) struct Durable {
    log: Arc<dyn StreamLog>,
    tasks: TaskTracker,
    /// Cancelled with the server; calls that nobody can come back to must not go on.
    over: CancellationToken,
    _owner: DropGuard,
}

/// A stream that a client may read.
pub(crate) struct Opened {
    /// What the client calls it.
    pub(crate) id: String,
    /// Its events.
    pub(crate) entries: Entries,
}

impl Durable {
    /// Calls are tracked by `tasks` and end when `cancelling` is cancelled, or with this.
    pub(crate) fn new(log: Arc<dyn StreamLog>, tasks: TaskTracker, cancelling: &CancellationToken) -> Self {
        let over = cancelling.child_token();
        Self {
            log,
            tasks,
            _owner: over.clone().drop_guard(),
            over,
        }
    }

    /// Starts a call under a new id. It goes on whatever becomes of the stream that is returned; what is `held` is held
    /// until it has ended.
    pub(crate) async fn run<H: Send + 'static>(
        &self,
        principal: Option<&Principal>,
        call: Call,
        held: H,
    ) -> Result<Opened> {
        let id = uuid::Uuid::new_v4().to_string();
        let key = key(principal, &call.action.descriptor().key, &id);
        let writer = self.log.open(&key).await?;
        let entries = self.log.read(&key, Position::START).await?;
        let (connection, over) = (call.connect(), self.over.clone());
        self.tasks.spawn(async move {
            write(writer, connection, &over).await;
            drop(held);
        });
        Ok(Opened { id, entries })
    }

    /// A stream that was begun earlier, from where the client left it; `None` if there is none for this principal.
    pub(crate) async fn replay(
        &self,
        principal: Option<&Principal>,
        action: &str,
        reattachment: &Reattachment,
    ) -> Result<Option<Opened>> {
        let id = reattachment.id.clone();
        match self
            .log
            .read(&key(principal, action, &id), reattachment.after)
            .await
        {
            Ok(entries) => Ok(Some(Opened { id, entries })),
            Err(error) if error.status() == Status::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks a call to stop.
    ///
    /// Fails with `NOT_FOUND` if there is none of that id for this principal.
    pub(crate) async fn stop(&self, principal: Option<&Principal>, action: &str, id: &str) -> Result<()> {
        self.log.stop(&key(principal, action, id)).await
    }
}

/// Where the log has a stream: with those of one principal and one action.
fn key(principal: Option<&Principal>, action: &str, id: &str) -> StreamKey {
    let scope = principal.map(Principal::scope).unwrap_or_default();
    StreamKey::new(format!("{}{action}", scope.as_str()), id)
}

/// Writes down what a call sends until it has ended, is stopped, or nobody could read it any more.
async fn write(
    writer: Box<dyn StreamWriter>,
    mut connection: Connection<(), Value, JsonText>,
    over: &CancellationToken,
) {
    let stop = writer.stop_requested();
    let outcome = tokio::select! {
        biased;
        () = stop.cancelled() => Err(Error::cancelled("the stream was stopped").with_public()),
        () = over.cancelled() => {
            Err(Error::unavailable("the server ended before the stream did").with_public())
        }
        outcome = record(writer.as_ref(), &mut connection) => outcome,
    };
    // Before the end is told, so that whoever was told finds the work ended.
    drop(connection);
    if let Err(error) = writer.finish(outcome).await {
        tracing::warn!(%error, "the end of a stream could not be kept");
    }
}

async fn record(
    writer: &dyn StreamWriter,
    connection: &mut Connection<(), Value, JsonText>,
) -> Result<JsonText> {
    let mut is_kept = true;
    while let Some(chunk) = connection.receive().next().await {
        if !is_kept {
            continue;
        }
        match writer.append(chunk).await {
            // Readers are told that there is no more of the stream. Its call goes on: what it does is not the stream.
            Err(error) if error.status() == Status::ResourceExhausted => {
                tracing::warn!(%error, "a stream is no longer kept");
                is_kept = false;
            }
            appended => drop(appended?),
        }
    }
    JsonText::of(&connection.output().await?)
}
