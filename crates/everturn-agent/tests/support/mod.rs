//! Small builders that the tests of agents share.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file uses its own part of this"
)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use everturn_agent::store::{
    Deletion, Detail, Journal, JournalGuard, JournalKey, JournalRecord, MemoryStore, Mutation, Order, Page,
    PendingPage, PendingQuery, Precondition, Scope, SessionQuery, SessionStore, SessionSummary,
    SnapshotQuery, StatusStream,
};
use everturn_agent::{
    AgentBuilder, AgentConnection, AgentSession, AgentStreamChunk, CustomState, SessionId, Snapshot,
    SnapshotId, Turn, custom_agent,
};
use everturn_ai::{FinishReason, History, Message};
use everturn_core::{Error, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A custom state.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counter {
    pub counter: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
}

/// What the user said.
pub fn said<S: CustomState>(turn: &Turn<S>) -> String {
    turn.message()
        .map(|message| message.text().into_owned())
        .unwrap_or_default()
}

/// An agent that answers every message with `re: <message>` and fails on `boom`.
pub fn replying(name: &str) -> AgentBuilder<Value> {
    handling(name, reply)
}

pub async fn reply(turn: Turn) -> Result<FinishReason> {
    let text = said(&turn);
    if text == "boom" {
        return Err(Error::unavailable("the oven is cold"));
    }
    turn.add_message(Message::model(format!("re: {text}")));
    Ok(FinishReason::Stop)
}

/// An agent that runs `handler` on every turn and returns the session's result.
pub fn handling<S, F, Fut, R>(name: &str, handler: F) -> AgentBuilder<S>
where
    S: CustomState,
    F: Fn(Turn<S>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R>> + Send + 'static,
    R: Into<everturn_agent::TurnResult> + Send + 'static,
{
    custom_agent(&Registry::new(), name, move |session: AgentSession<S>| {
        let handler = handler.clone();
        async move {
            session.run(handler).await?;
            Ok(session.result())
        }
    })
}

pub fn texts(history: &History) -> Vec<String> {
    history
        .iter()
        .map(|message| message.text().into_owned())
        .collect()
}

/// Every chunk up to the end of the invocation.
pub async fn all_chunks<S: CustomState>(connection: &mut AgentConnection<S>) -> Vec<AgentStreamChunk> {
    connection.close();
    let mut chunks = Vec::new();
    while let Some(chunk) = connection.next().await {
        chunks.push(chunk);
    }
    chunks
}

pub fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap()
}

/// A store whose rows can be made to fail, and that counts what was written.
#[derive(Clone, Default)]
pub struct FaultyStore {
    pub inner: MemoryStore,
    fault: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    saves_fail: AtomicBool,
    reads_fail: AtomicBool,
    cannot_watch: AtomicBool,
    saves: AtomicUsize,
    records: AtomicUsize,
    cleared: AtomicUsize,
}

impl FaultyStore {
    /// Another way to the same rows, which fails on its own.
    pub fn elsewhere(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            fault: Arc::default(),
        }
    }

    pub fn fail_saves(&self, fail: bool) {
        self.fault.saves_fail.store(fail, Ordering::SeqCst);
    }

    pub fn fail_reads(&self, fail: bool) {
        self.fault.reads_fail.store(fail, Ordering::SeqCst);
    }

    pub fn without_watching(self) -> Self {
        self.fault.cannot_watch.store(true, Ordering::SeqCst);
        self
    }

    /// How many rows were written.
    pub fn saves(&self) -> usize {
        self.fault.saves.load(Ordering::SeqCst)
    }

    /// How many records of journals were written.
    pub fn records(&self) -> usize {
        self.fault.records.load(Ordering::SeqCst)
    }

    /// How many journals were dropped.
    pub fn cleared(&self) -> usize {
        self.fault.cleared.load(Ordering::SeqCst)
    }

    fn read(&self) -> Result<()> {
        if self.fault.reads_fail.load(Ordering::SeqCst) {
            return Err(Error::unavailable("the disk is unplugged"));
        }
        Ok(())
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

#[async_trait]
impl SessionStore for FaultyStore {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        self.read()?;
        self.inner.get(scope, id, detail).await
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        self.read()?;
        self.inner.latest(scope, session, detail).await
    }

    async fn save(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
    ) -> Result<Option<Snapshot>> {
        if self.fault.saves_fail.load(Ordering::SeqCst) {
            return Err(Error::resource_exhausted("the disk is full"));
        }
        // A mutation must be pure: a store under contention runs it again.
        let mutation: Mutation = Arc::new(move |row| {
            let first = mutation(row)?;
            let second = mutation(row)?;
            assert_eq!(first, second, "a mutation depends on something else than the row");
            Ok(second)
        });
        let saved = self.inner.save(scope, id, precondition, mutation).await?;
        if saved.is_some() {
            self.fault.saves.fetch_add(1, Ordering::SeqCst);
        }
        Ok(saved)
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        self.inner.list(scope, query).await
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        self.inner.sessions(scope, query).await
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        self.inner.children(scope, id).await
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        self.inner.delete(scope, deletion).await
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        self.read()?;
        self.inner.pending(query).await
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        self.inner.watch(scope, id)
    }

    fn can_watch(&self) -> bool {
        !self.fault.cannot_watch.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Journal for FaultyStore {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()> {
        Journal::append(&self.inner, scope, key, record, guard).await?;
        self.fault.records.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        FaultyStore::read(self)?;
        Journal::read(&self.inner, scope, key).await
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        self.fault.cleared.fetch_add(1, Ordering::SeqCst);
        Journal::clear(&self.inner, scope, key).await
    }

    async fn sweep(&self, before: jiff::Timestamp) -> Result<u64> {
        Journal::sweep(&self.inner, before).await
    }
}

/// The rows of a session with their states, oldest first.
pub async fn rows(store: &dyn SessionStore, session: &SessionId) -> Vec<Snapshot> {
    let mut query = SnapshotQuery::of(session.clone());
    query.order = Order::Oldest;
    query.detail = Detail::Whole;
    let mut rows = Vec::new();
    loop {
        let page = store.list(&Scope::default(), &query).await.unwrap();
        rows.extend(page.items);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return rows,
        }
    }
}
