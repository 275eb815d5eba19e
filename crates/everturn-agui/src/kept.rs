//! Runs in a stream log: a run that is sent again is read again, and the messages of a turn that was not committed are
//! remembered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::Scope;
use everturn_core::Context;
use everturn_core::stream_log::{
    Entries, Entry, JsonText, Position, StreamEvent, StreamKey, StreamLog, StreamSubject, StreamWriter,
};
use everturn_server::ServerStreamLog;
use futures::StreamExt;

use crate::ids::parse;
use crate::input::RunInput;

/// The log as one request sees it.
#[derive(Debug)]
pub(crate) struct Kept {
    log: Arc<dyn StreamLog>,
    scope: Scope,
    agent: String,
    thread: String,
    run: String,
}

impl Kept {
    /// Returns the server's log, or else the adapter's own.
    pub(crate) fn of(own: &Arc<dyn StreamLog>, agent: &str, input: &RunInput, context: &Context) -> Self {
        let log = context
            .extension::<ServerStreamLog>()
            .map(|streams| streams.log());
        let scope = context.extension::<Scope>();
        Self {
            log: log.unwrap_or_else(|| Arc::clone(own)),
            // Nobody finds the runs of another.
            scope: scope.map(|scope| Scope::clone(&scope)).unwrap_or_default(),
            agent: agent.to_owned(),
            thread: input.thread_id.clone(),
            run: input.run_id.clone(),
        }
    }

    fn key(&self, kind: &str, id: &str) -> StreamKey {
        let tenant = self.scope.as_str();
        // Erased with its session.
        let subject = StreamSubject::session(tenant, self.thread.as_str());
        StreamKey::new(format!("{tenant}/agui/{kind}/{}", self.agent), id)
            .owned_by(tenant)
            .about(subject)
    }

    fn run_key(&self) -> StreamKey {
        // The length tells where the thread's id ends.
        let id = format!("{}/{}/{}", self.thread.len(), self.thread, self.run);
        self.key("runs", &id)
    }

    /// Returns the events of this run if it was made before.
    pub(crate) async fn made_before(&self) -> Option<Entries> {
        self.log.read(&self.run_key(), Position::START).await.ok()
    }

    /// Keeps the events of this run, and that a turn has begun whose name is in the ids of its messages. A log without room
    /// keeps nothing.
    pub(crate) async fn keep(&self, name: &str) -> Keeping {
        let turn = async {
            let turn = self.log.open(&self.key("turns", name)).await.ok()?;
            turn.append(JsonText::of(&self.thread).ok()?).await.ok()?;
            Some(turn)
        };
        Keeping {
            turn: turn.await,
            events: self.log.open(&self.run_key()).await.ok(),
        }
    }

    /// Returns whether the turn of this name is one of this thread that was not committed.
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
        // A log may learn late that a turn's client has left.
        let end = tokio::time::timeout(LATE, entries.next()).await;
        let is_committed = matches!(
            end,
            Ok(Some(Ok(Entry { event: StreamEvent::Done(committed), .. }))) if committed.read().unwrap_or(true)
        );
        is_of_thread && !is_committed
    }
}

/// The turns of a thread that were not committed, each looked up once.
#[derive(Debug)]
pub(crate) struct LostTurns<'a> {
    kept: &'a Kept,
    known: HashMap<String, bool>,
}

impl<'a> LostTurns<'a> {
    pub(crate) fn of(kept: &'a Kept) -> Self {
        let known = HashMap::new();
        Self { kept, known }
    }

    /// Returns whether a message or call of this id was told by one of them.
    pub(crate) async fn told(&mut self, id: &str) -> bool {
        let Some((name, _)) = parse(id) else {
            return false;
        };
        if let Some(is_lost) = self.known.get(&name) {
            return *is_lost;
        }
        let is_lost = self.kept.is_lost(&name).await;
        self.known.insert(name, is_lost);
        is_lost
    }
}

/// How long the end of a turn is waited for that may have lost its client.
const LATE: Duration = Duration::from_secs(1);

/// A run that is being kept. Dropping it tells that the turn was not committed.
#[derive(Debug)]
pub(crate) struct Keeping {
    turn: Option<Box<dyn StreamWriter>>,
    events: Option<Box<dyn StreamWriter>>,
}

impl Keeping {
    /// Keeps events. A log that is full ends the keeping, not the run.
    pub(crate) async fn add(&mut self, events: &[JsonText]) {
        for event in events {
            let Some(writer) = &self.events else { return };
            if writer.append(event.clone()).await.is_err() {
                self.events = None;
            }
        }
    }

    /// Ends the keeping; `committed` tells whether the turn is on record.
    pub(crate) async fn end(&mut self, committed: bool) {
        let Ok(committed) = JsonText::of(&committed) else {
            return;
        };
        for writer in [self.turn.take(), self.events.take()].into_iter().flatten() {
            // The log has every event; only the mark of the end is lost.
            let _ = writer.finish(Ok(committed.clone())).await;
        }
    }
}
