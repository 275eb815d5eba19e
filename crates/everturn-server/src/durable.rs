//! Streamed calls that outlive their client's connection.
//!
//! Every reader of a call, the first one included, reads the stream log. So a client that reattaches reads the same bytes
//! again, and a slow client does not hold up the call.

mod frame;
mod reattachment;

use std::sync::Arc;

use everturn_core::stream_log::{Entries, JsonText, Position, StreamKey, StreamLog, StreamWriter};
use everturn_core::{Connection, Error, Result, Status};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) use self::frame::{Reading, frames};
pub(crate) use self::reattachment::{Reattachment, STREAM_ID, stream_id};
use crate::call::Call;
use crate::principal::Principal;

/// Runs calls whose streams are logged, and finds their streams again.
pub(crate) struct Durable {
    log: Arc<dyn StreamLog>,
    tasks: TaskTracker,
    /// Cancelled when the server ends: a call that no client can reattach to must not go on.
    over: CancellationToken,
    _owner: DropGuard,
}

/// A stream that is opened for a client.
pub(crate) struct Opened {
    /// The id by which the client names the stream.
    pub(crate) id: String,
    /// The events of the stream.
    pub(crate) entries: Entries,
}

impl Durable {
    /// Returns a runner whose calls are tracked by `tasks` and end when `cancelling` is cancelled, or when it is dropped.
    pub(crate) fn new(log: Arc<dyn StreamLog>, tasks: TaskTracker, cancelling: &CancellationToken) -> Self {
        let over = cancelling.child_token();
        Self {
            log,
            tasks,
            _owner: over.clone().drop_guard(),
            over,
        }
    }

    /// Starts a call under a new id. The call goes on even if the returned stream is dropped; `held` is dropped when the call
    /// has ended.
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

    /// Opens an existing stream after the last event that the client has seen; `None` if this principal has no such stream.
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
    /// Fails with `NOT_FOUND` if this principal has no call of that id.
    pub(crate) async fn stop(&self, principal: Option<&Principal>, action: &str, id: &str) -> Result<()> {
        self.log.stop(&key(principal, action, id)).await
    }
}

/// Returns the key of a stream in the log. Streams of one principal and one action share a scope.
fn key(principal: Option<&Principal>, action: &str, id: &str) -> StreamKey {
    let scope = principal.map(Principal::scope).unwrap_or_default();
    StreamKey::new(format!("{}{action}", scope.as_str()), id)
}

/// Logs the events of a call until the call ends, is stopped, or can no longer be reattached to.
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
            Err(Error::unavailable("the server shut down before the stream ended").with_public())
        }
        outcome = record(writer.as_ref(), &mut connection) => outcome,
    };
    // Dropped before the end is logged, so that a reader of the end finds the work ended.
    drop(connection);
    if let Err(error) = writer.finish(outcome).await {
        tracing::warn!(%error, "the end of a stream cannot be logged");
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
            // Readers are told that the stream has ended. The call goes on: its work does not depend on the stream.
            Err(error) if error.status() == Status::ResourceExhausted => {
                tracing::warn!(%error, "a stream cannot be logged any longer");
                is_kept = false;
            }
            appended => drop(appended?),
        }
    }
    JsonText::of(&connection.output().await?)
}
