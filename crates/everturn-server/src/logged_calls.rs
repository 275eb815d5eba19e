//! Streamed calls that outlive their client's connection.
//!
//! Every reader of a call, including the first, reads the stream log. A client that reconnects therefore
//! reads the same bytes, and a slow client does not delay the call. A full log never rejects a call: the call
//! continues unrecorded for its first client, and ends when that client disconnects.

mod reconnection;

use std::sync::Arc;

use everturn_agent::HandOff;
use everturn_core::stream_log::{
    Entries, Entry, JsonText, Position, StreamEvent, StreamKey, StreamLog, StreamSubject, StreamWriter,
    SubjectNote,
};
use everturn_core::{Connection, Error, Result, Scope, Status};
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) use self::reconnection::{Reconnection, STREAM_ID, stream_id};
use crate::ServerHandle;
use crate::action_call::ActionCall;

/// The maximum number of unrecorded events that wait for a client.
const UNRECORDED: usize = 32;

/// Runs calls whose streams are logged, and opens their streams again.
pub(crate) struct LoggedCalls {
    log: Arc<dyn StreamLog>,
    tasks: TaskTracker,
    /// Cancelled when the server ends: a call to which no client can reconnect must end.
    over: Ended,
    /// The same for calls that cannot be detached, which end with the grace period.
    grace_over: Ended,
}

/// A token that is cancelled when the server ends, or on drop.
struct Ended {
    token: CancellationToken,
    _owner: DropGuard,
}

impl Ended {
    fn with(stage: &CancellationToken) -> Self {
        let token = stage.child_token();
        Self {
            _owner: token.clone().drop_guard(),
            token,
        }
    }
}

/// A stream that is opened for a client.
pub(crate) struct LoggedStream {
    /// The id by which the client names the stream.
    pub(crate) id: String,
    /// The events of the stream.
    pub(crate) entries: Entries,
}

impl LoggedCalls {
    /// Returns a runner whose calls end with the server, or when it is dropped.
    pub(crate) fn new(log: Arc<dyn StreamLog>, server: &ServerHandle) -> Self {
        Self {
            log,
            tasks: server.tasks().clone(),
            over: Ended::with(server.cancelling()),
            grace_over: Ended::with(server.grace_over()),
        }
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> Arc<dyn StreamLog> {
        Arc::clone(&self.log)
    }

    /// Starts a call under a new id. The call continues if the returned stream is dropped; `held` is dropped
    /// when the call has ended.
    ///
    /// If the log stops recording the stream, the returned reader still receives it, and `on_unrecorded` is
    /// called once.
    ///
    /// Returns the call unstarted if the log has no room for another stream.
    pub(crate) async fn run<H: Send + 'static>(
        &self,
        scope: &Scope,
        owner: &str,
        call: ActionCall,
        held: H,
        on_unrecorded: impl FnOnce() + Send + 'static,
    ) -> Result<LoggedStream, ActionCall> {
        let id = uuid::Uuid::new_v4().to_string();
        let key = key(scope, &call.action.descriptor().key, &id).owned_by(owner);
        let note = Arc::new(SubjectNote::default());
        let mut call = call;
        call.context = call.context.with_extension(Arc::clone(&note));
        let opened = async {
            let writer = self.log.open(&key).await?;
            Ok::<_, Error>((writer, self.log.read(&key, Position::START).await?))
        };
        let (writer, entries) = match opened.await {
            Ok(opened) => opened,
            Err(error) => {
                tracing::warn!(%error, "a stream is not recorded");
                return Err(call);
            }
        };
        let can_be_handed_off = call.context.extension::<HandOff>().is_some();
        let over = if can_be_handed_off {
            &self.over
        } else {
            &self.grace_over
        };
        let (connection, over) = (call.connect(), over.token.clone());
        let (rest, unrecorded) = mpsc::channel(UNRECORDED);
        let logged = LoggedCall {
            connection,
            note: Some(note),
            rest,
            is_recorded: true,
        };
        self.tasks.spawn(async move {
            logged.run(writer, &over, on_unrecorded).await;
            drop(held);
        });
        Ok(LoggedStream {
            id,
            entries: followed_by(entries, unrecorded),
        })
    }

    /// Opens an existing stream after the last event that the client has; `None` if this tenant has no such
    /// stream.
    pub(crate) async fn replay(
        &self,
        scope: &Scope,
        action: &str,
        reconnection: &Reconnection,
    ) -> Result<Option<LoggedStream>> {
        let id = reconnection.id.clone();
        match self.log.read(&key(scope, action, &id), reconnection.after).await {
            Ok(entries) => Ok(Some(LoggedStream { id, entries })),
            Err(error) if error.status() == Status::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Requests that a call stops.
    ///
    /// Fails with `NOT_FOUND` if this tenant has no call of that id.
    pub(crate) async fn stop(&self, scope: &Scope, action: &str, id: &str) -> Result<()> {
        self.log.stop(&key(scope, action, id)).await
    }
}

/// Returns the key of a stream in the log. Streams of one tenant and one action share a prefix.
fn key(scope: &Scope, action: &str, id: &str) -> StreamKey {
    let subject = StreamSubject::tenant(scope.as_str());
    StreamKey::new(format!("{}{action}", scope.as_str()), id).about(subject)
}

/// A call whose events are logged.
struct LoggedCall {
    connection: Connection<(), JsonText, JsonText>,
    /// The agent writes the stream's session here; `None` once the log has received it.
    note: Option<Arc<SubjectNote>>,
    /// Sends unrecorded events to the first client.
    rest: mpsc::Sender<StreamEvent>,
    is_recorded: bool,
}

impl LoggedCall {
    /// Logs the events of a call until the call ends, is stopped, or accepts no more reconnections.
    async fn run(
        mut self,
        writer: Box<dyn StreamWriter>,
        over: &CancellationToken,
        on_unrecorded: impl FnOnce(),
    ) {
        let stop = writer.stop_requested();
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::cancelled("the stream was stopped").with_public()),
            () = over.cancelled() => {
                Err(Error::unavailable("the server ended before the stream did").with_public())
            }
            outcome = self.record(writer.as_ref(), on_unrecorded) => outcome,
        };
        self.set_subject(writer.as_ref()).await;
        let Self {
            connection,
            rest,
            is_recorded,
            ..
        } = self;
        // Dropped before the end is logged, so that the work has ended when a reader receives the end.
        drop(connection);
        let end = match &outcome {
            Ok(output) => StreamEvent::Done(output.clone()),
            Err(error) => StreamEvent::Failed(error.clone()),
        };
        let finished = writer.finish(outcome).await;
        if let Err(error) = &finished
            && is_recorded
        {
            let error = error.with_causes();
            tracing::error!(%error, "the end of a stream is lost: clients that reattach do not see it");
        }
        if !is_recorded || finished.is_err() {
            // The client may have disconnected, or may disconnect when the server ends.
            let _ = over.run_until_cancelled(rest.send(end)).await;
        }
    }

    /// Sends the stream's subject to the log, once the agent has set it.
    async fn set_subject(&mut self, writer: &dyn StreamWriter) {
        let known = self.note.as_ref().and_then(|note| note.subject().cloned());
        if let Some(subject) = known {
            self.note = None;
            // The next write reports a stream that can no longer be written.
            let _ = writer.about(&subject).await;
        }
    }

    /// Logs the chunks. If the log is full, the call continues while its client reads it.
    async fn record(&mut self, writer: &dyn StreamWriter, on_unrecorded: impl FnOnce()) -> Result<JsonText> {
        let mut on_unrecorded = Some(on_unrecorded);
        loop {
            let mut chunks = self.connection.receive();
            let next = tokio::select! {
                biased;
                () = self.rest.closed(), if !self.is_recorded => return Err(client_disconnected()),
                next = chunks.next() => next,
            };
            let Some(chunk) = next else { break };
            self.set_subject(writer).await;
            if self.is_recorded {
                match writer.append(chunk.clone()).await {
                    Ok(_) => continue,
                    Err(error) => {
                        let error = error.with_causes();
                        tracing::error!(%error, "the rest of a stream is lost: clients cannot reattach to it");
                        self.is_recorded = false;
                        if let Some(on_unrecorded) = on_unrecorded.take() {
                            on_unrecorded();
                        }
                    }
                }
            }
            // The next wait for an event detects that the client has disconnected.
            let _ = self.rest.send(StreamEvent::Chunk(chunk)).await;
        }
        tokio::select! {
            biased;
            () = self.rest.closed(), if !self.is_recorded => Err(client_disconnected()),
            output = self.connection.output() => output,
        }
    }
}

/// Returns the error of an unrecorded call whose client has disconnected: it has no other reader.
fn client_disconnected() -> Error {
    Error::cancelled("the client disconnected, and the stream is not recorded")
}

/// Returns the entries of a stream, followed by the events that the log did not record.
///
/// The log ends a stream that it cannot record with an error. The channel distinguishes such an error from
/// the call's own: the other end of `rest` is dropped once the call has ended.
fn followed_by(entries: Entries, rest: mpsc::Receiver<StreamEvent>) -> Entries {
    let reading = (Some(entries), rest, Position::START);
    futures::stream::unfold(reading, |(mut entries, mut rest, seen)| async move {
        let next = match &mut entries {
            Some(kept) => kept.next().await?,
            None => Ok(unrecorded(rest.recv().await?, seen)),
        };
        let is_broken = matches!(
            &next,
            Err(_)
                | Ok(Entry {
                    event: StreamEvent::Failed(_),
                    ..
                })
        );
        let next = if entries.is_some() && is_broken {
            entries = None;
            rest.recv()
                .await
                .map_or(next, |event| Ok(unrecorded(event, seen)))
        } else {
            next
        };
        let seen = next.as_ref().map_or(seen, |entry| entry.position);
        Some((next, (entries, rest, seen)))
    })
    .boxed()
}

fn unrecorded(event: StreamEvent, after: Position) -> Entry {
    Entry::new(after.next(), event)
}

#[cfg(test)]
mod tests {
    use everturn_core::stream_log::MemoryStreamLog;
    use everturn_core::{Context, Emitter, Registry};
    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::Grace;
    use crate::request_body::Envelope;

    fn call(registry: &Registry, context: Context) -> ActionCall {
        let action = registry.get("/flow/endless").unwrap();
        let envelope = Envelope {
            data: Some(Value::Null),
            ..Envelope::default()
        };
        ActionCall {
            action,
            envelope,
            context,
            values: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_takes_the_grace_period_and_no_longer_for_a_stream_without_a_reader() {
        let registry = Registry::new();
        let over = CancellationToken::new();
        let ended = over.clone();
        let endless = move |(): (), _: Emitter<u32>| {
            let ended = ended.clone();
            async move {
                let _ended = ended.drop_guard();
                std::future::pending::<()>().await;
                Ok(())
            }
        };
        registry.define_streaming_flow("endless", endless).unwrap();
        let (handle, grace) = (ServerHandle::default(), Grace::default());
        let logged_calls = LoggedCalls::new(Arc::new(MemoryStreamLog::new()), &handle);

        let opened = logged_calls
            .run(&Scope::default(), "", call(&registry, Context::new()), (), || {})
            .await;
        drop(opened);
        handle.tasks().close();
        let begun = Instant::now();
        handle.wind_down(grace, handle.tasks()).await;

        assert!(over.is_cancelled());
        assert_eq!(begun.elapsed(), grace.period);
    }

    #[tokio::test]
    async fn a_call_whose_stream_is_not_recorded_ends_when_its_client_disconnects() {
        let registry = Registry::new();
        let over = CancellationToken::new();
        let ended = over.clone();
        let endless = move |(): (), emitter: Emitter<String>| {
            let ended = ended.clone();
            async move {
                let _ended = ended.drop_guard();
                loop {
                    emitter.send("x".repeat(1_000)).await?;
                }
                #[expect(unreachable_code, reason = "says what the flow would return")]
                Ok(())
            }
        };
        registry.define_streaming_flow("endless", endless).unwrap();
        let handle = ServerHandle::default();
        let log = MemoryStreamLog::options().max_stream_bytes(10_000).build();
        let logged_calls = LoggedCalls::new(Arc::new(log), &handle);
        let opened = logged_calls
            .run(&Scope::default(), "", call(&registry, Context::new()), (), || {})
            .await;
        let mut entries = opened.ok().unwrap().entries;
        for _ in 0..20 {
            let entry = entries.next().await.unwrap().unwrap();
            assert!(!entry.event.is_end(), "the call continues for its client");
        }

        drop(entries);
        handle.tasks().close();
        handle.tasks().wait().await;

        assert!(over.is_cancelled());
    }
}
