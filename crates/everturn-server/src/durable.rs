//! Streamed calls that outlive their client's connection.
//!
//! Every reader of a call, the first one included, reads the stream log. So a client that reattaches reads the same bytes
//! again, and a slow client does not hold up the call. A full log never refuses a call: the call goes on for the client that
//! made it, without being kept, and ends when that client leaves.

mod frame;
mod reattachment;

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

pub(crate) use self::frame::{Reading, frames};
pub(crate) use self::reattachment::{Reattachment, STREAM_ID, stream_id};
use crate::ServerHandle;
use crate::call::Call;

/// The greatest number of events that wait for a client behind what the log kept.
const UNKEPT: usize = 32;

/// Runs calls whose streams are logged, and finds their streams again.
pub(crate) struct Durable {
    log: Arc<dyn StreamLog>,
    tasks: TaskTracker,
    /// Cancelled when the server ends: a call that no client can reattach to must not go on.
    over: Ended,
    /// The same for calls that cannot be handed to the background, which end with the grace period.
    grace_over: Ended,
}

/// A token that is cancelled when the server ends, or when this is dropped.
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
pub(crate) struct Opened {
    /// The id by which the client names the stream.
    pub(crate) id: String,
    /// The events of the stream.
    pub(crate) entries: Entries,
}

impl Durable {
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

    /// Starts a call under a new id. The call goes on even if the returned stream is dropped; `held` is dropped when the call
    /// has ended.
    ///
    /// A stream that the log ceases to keep goes on for the returned reader, and `not_kept` is called once.
    ///
    /// Fails with the call, which has not started, if the log cannot keep another stream.
    pub(crate) async fn run<H: Send + 'static>(
        &self,
        scope: &Scope,
        owner: &str,
        call: Call,
        held: H,
        not_kept: impl FnOnce() + Send + 'static,
    ) -> Result<Opened, Call> {
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
                tracing::warn!(%error, "a stream is not kept");
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
        let (rest, unkept) = mpsc::channel(UNKEPT);
        let recording = Recording {
            connection,
            note: Some(note),
            rest,
            is_kept: true,
        };
        self.tasks.spawn(async move {
            recording.run(writer, &over, not_kept).await;
            drop(held);
        });
        Ok(Opened {
            id,
            entries: followed_by(entries, unkept),
        })
    }

    /// Opens an existing stream after the last event that the client has seen; `None` if this tenant has no such stream.
    pub(crate) async fn replay(
        &self,
        scope: &Scope,
        action: &str,
        reattachment: &Reattachment,
    ) -> Result<Option<Opened>> {
        let id = reattachment.id.clone();
        match self.log.read(&key(scope, action, &id), reattachment.after).await {
            Ok(entries) => Ok(Some(Opened { id, entries })),
            Err(error) if error.status() == Status::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks a call to stop.
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
struct Recording {
    connection: Connection<(), JsonText, JsonText>,
    /// Where the agent leaves the session that the stream is about; `None` once the log knows it.
    note: Option<Arc<SubjectNote>>,
    /// The way of events that the log does not keep, to the client that made the call.
    rest: mpsc::Sender<StreamEvent>,
    is_kept: bool,
}

impl Recording {
    /// Logs the events of a call until the call ends, is stopped, or can no longer be reattached to.
    async fn run(mut self, writer: Box<dyn StreamWriter>, over: &CancellationToken, not_kept: impl FnOnce()) {
        let stop = writer.stop_requested();
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::cancelled("the stream was stopped").with_public()),
            () = over.cancelled() => {
                Err(Error::unavailable("the server ended before the stream did").with_public())
            }
            outcome = self.record(writer.as_ref(), not_kept) => outcome,
        };
        self.tell_subject(writer.as_ref()).await;
        let Self {
            connection,
            rest,
            is_kept,
            ..
        } = self;
        // Dropped before the end is logged, so that a reader of the end finds the work ended.
        drop(connection);
        let end = match &outcome {
            Ok(output) => StreamEvent::Done(output.clone()),
            Err(error) => StreamEvent::Failed(error.clone()),
        };
        let finished = writer.finish(outcome).await;
        if let Err(error) = &finished
            && is_kept
        {
            let error = error.with_causes();
            tracing::error!(%error, "the end of a stream is lost: clients that reattach do not see it");
        }
        if !is_kept || finished.is_err() {
            // The client may have left, or may leave only with the server.
            let _ = over.run_until_cancelled(rest.send(end)).await;
        }
    }

    /// Tells the log whose text the stream holds, once the agent knows.
    async fn tell_subject(&mut self, writer: &dyn StreamWriter) {
        let known = self.note.as_ref().and_then(|note| note.subject().cloned());
        if let Some(subject) = known {
            self.note = None;
            // A stream that can no longer be written says so when it is written next.
            let _ = writer.about(&subject).await;
        }
    }

    /// Logs the chunks. The call goes on when the log is full, as long as its client reads it.
    async fn record(&mut self, writer: &dyn StreamWriter, not_kept: impl FnOnce()) -> Result<JsonText> {
        let mut not_kept = Some(not_kept);
        loop {
            let mut chunks = self.connection.receive();
            let next = tokio::select! {
                biased;
                () = self.rest.closed(), if !self.is_kept => return Err(client_left()),
                next = chunks.next() => next,
            };
            let Some(chunk) = next else { break };
            self.tell_subject(writer).await;
            if self.is_kept {
                match writer.append(chunk.clone()).await {
                    Ok(_) => continue,
                    Err(error) => {
                        let error = error.with_causes();
                        tracing::error!(%error, "the rest of a stream is lost: clients cannot reattach to it");
                        self.is_kept = false;
                        if let Some(not_kept) = not_kept.take() {
                            not_kept();
                        }
                    }
                }
            }
            // That the client has left is found when the next event is waited for.
            let _ = self.rest.send(StreamEvent::Chunk(chunk)).await;
        }
        tokio::select! {
            biased;
            () = self.rest.closed(), if !self.is_kept => Err(client_left()),
            output = self.connection.output() => output,
        }
    }
}

/// Ends a call whose stream is not kept and whose client has left: it has no other reader.
fn client_left() -> Error {
    Error::cancelled("the client left, and the stream is not kept")
}

/// Returns the entries of a stream, and behind them the events that the log did not keep.
///
/// The log ends a stream that it cannot keep with an error. Whether an error is the call's own or the log's is known by what
/// follows: the other end of `rest` is dropped once the call has ended.
fn followed_by(entries: Entries, rest: mpsc::Receiver<StreamEvent>) -> Entries {
    let reading = (Some(entries), rest, Position::START);
    futures::stream::unfold(reading, |(mut entries, mut rest, seen)| async move {
        let next = match &mut entries {
            Some(kept) => kept.next().await?,
            None => Ok(unkept(rest.recv().await?, seen)),
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
            rest.recv().await.map_or(next, |event| Ok(unkept(event, seen)))
        } else {
            next
        };
        let seen = next.as_ref().map_or(seen, |entry| entry.position);
        Some((next, (entries, rest, seen)))
    })
    .boxed()
}

fn unkept(event: StreamEvent, after: Position) -> Entry {
    Entry {
        position: after.next(),
        event,
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::stream_log::MemoryStreamLog;
    use everturn_core::{Context, Emitter, Registry};
    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::Grace;
    use crate::envelope::Envelope;

    fn call(registry: &Registry, context: Context) -> Call {
        let action = registry.get("/flow/endless").unwrap();
        let envelope = Envelope {
            data: Some(Value::Null),
            ..Envelope::default()
        };
        Call {
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
        let durable = Durable::new(Arc::new(MemoryStreamLog::new()), &handle);

        let opened = durable
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
    async fn a_call_whose_stream_is_not_kept_ends_when_its_client_leaves() {
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
        let durable = Durable::new(Arc::new(log), &handle);
        let opened = durable
            .run(&Scope::default(), "", call(&registry, Context::new()), (), || {})
            .await;
        let mut entries = opened.ok().unwrap().entries;
        for _ in 0..20 {
            let entry = entries.next().await.unwrap().unwrap();
            assert!(!entry.event.is_end(), "the call goes on for its client");
        }

        drop(entries);
        handle.tasks().close();
        handle.tasks().wait().await;

        assert!(over.is_cancelled());
    }
}
