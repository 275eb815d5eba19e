//! Runs in a stream log: a repeated run replays its events, and turns that were not committed are remembered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::Context;
use everturn_core::stream_log::{Entries, Entry, JsonText, Position, StreamEvent, StreamKey, StreamLog};
use everturn_server::{CallerStreams, RecordedStream, ServerStreamLog};
use futures::StreamExt;

use crate::ids::parse;
use crate::input::RunInput;

/// The stream log as one run sees it.
#[derive(Debug)]
pub(crate) struct RunLog {
    log: Arc<dyn StreamLog>,
    streams: CallerStreams,
    agent: String,
    thread: String,
    run: String,
}

impl RunLog {
    /// Returns the server's log, or else the adapter's own.
    pub(crate) fn of(own: &Arc<dyn StreamLog>, agent: &str, input: &RunInput, context: &Context) -> Self {
        Self {
            log: ServerStreamLog::or_own(own, context),
            streams: CallerStreams::of("agui", context),
            agent: agent.to_owned(),
            thread: input.thread_id.clone(),
            run: input.run_id.clone(),
        }
    }

    /// Returns the key of a stream that is erased with the thread's session.
    fn key(&self, kind: &str, id: &str) -> StreamKey {
        let key = self.streams.key(&format!("{kind}/{}", self.agent), id);
        key.about(self.streams.session(&self.thread))
    }

    fn run_key(&self) -> StreamKey {
        // The length prefix delimits the thread's id.
        let id = format!("{}/{}/{}", self.thread.len(), self.thread, self.run);
        self.key("runs", &id)
    }

    /// Returns the events of this run if it was recorded.
    pub(crate) async fn earlier_run(&self) -> Option<Entries> {
        self.log.read(&self.run_key(), Position::START).await.ok()
    }

    /// Starts to record the events of this run, and the turn's name, which is in the ids of its messages. A
    /// full log records nothing.
    pub(crate) async fn start_recording(&self, name: &str) -> RunRecorder {
        let mut turn = RecordedStream::open(&*self.log, &self.key("turns", name)).await;
        turn.append(JsonText::of(&self.thread).into_iter()).await;
        RunRecorder {
            turn,
            events: RecordedStream::open(&*self.log, &self.run_key()).await,
        }
    }

    /// Returns whether this thread has a turn of this name that was not committed.
    async fn is_lost(&self, name: &str) -> bool {
        let Ok(mut entries) = self.log.read(&self.key("turns", name), Position::START).await else {
            return false;
        };
        let is_of_thread = match entries.next().await {
            Some(Ok(Entry {
                event: StreamEvent::Chunk(thread),
                ..
            })) => thread.read::<String>().is_ok_and(|thread| thread == self.thread),
            _ => false,
        };
        // A log may detect late that a turn's client has disconnected.
        let end = tokio::time::timeout(LATE, entries.next()).await;
        let is_committed = matches!(
            end,
            Ok(Some(Ok(Entry { event: StreamEvent::Done(committed), .. }))) if committed.read().unwrap_or(true)
        );
        is_of_thread && !is_committed
    }
}

/// The uncommitted turns of a thread. Each name is looked up once.
#[derive(Debug)]
pub(crate) struct UncommittedTurns<'a> {
    log: &'a RunLog,
    known: HashMap<String, bool>,
}

impl<'a> UncommittedTurns<'a> {
    pub(crate) fn of(log: &'a RunLog) -> Self {
        let known = HashMap::new();
        Self { log, known }
    }

    /// Returns whether a message or call of this id was sent by an uncommitted turn.
    pub(crate) async fn sent(&mut self, id: &str) -> bool {
        let Some((name, _)) = parse(id) else {
            return false;
        };
        if let Some(is_lost) = self.known.get(name) {
            return *is_lost;
        }
        let is_lost = self.log.is_lost(name).await;
        self.known.insert(name.to_owned(), is_lost);
        is_lost
    }
}

/// The time to wait for the end of a turn whose client may have disconnected.
const LATE: Duration = Duration::from_secs(1);

/// Records a run. A run that is dropped before `finish` counts as not committed.
#[derive(Debug)]
pub(crate) struct RunRecorder {
    turn: RecordedStream,
    pub(crate) events: RecordedStream,
}

impl RunRecorder {
    /// Ends the recording. `committed` is whether the turn is stored.
    pub(crate) async fn finish(&mut self, committed: bool) {
        self.turn.finish(&committed).await;
        self.events.finish(&committed).await;
    }
}
