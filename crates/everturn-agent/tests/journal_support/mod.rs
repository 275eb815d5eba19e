//! Processes that die, and a world outside that remembers what they did.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "every test file uses its own part of this, and it is test code"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use everturn_agent::store::{
    Deletion, Detail, Journal, JournalGuard, JournalKey, JournalRecord, MemoryStore, Mutation, Page,
    PendingPage, PendingQuery, Precondition, Scope, SessionQuery, SessionStore, SessionSummary,
    SnapshotQuery, StatusStream,
};
use everturn_agent::{
    Agent, AgentInit, AgentInput, AgentOutput, CustomState, SessionId, Snapshot, SnapshotId,
};
use everturn_ai::{ModelInfo, ModelRequest, ModelResponse, Role, define_model, set_default_model};
use everturn_core::{Registry, Result};
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Where a process dies: at the step of that number, and at every later one.
#[derive(Clone)]
pub(crate) struct Fuse {
    steps: Arc<AtomicUsize>,
    burns_at: usize,
    burnt: CancellationToken,
}

impl Fuse {
    pub(crate) fn burning_at(step: usize) -> Self {
        Self {
            steps: Arc::default(),
            burns_at: step,
            burnt: CancellationToken::new(),
        }
    }

    /// A process that lives.
    pub(crate) fn never() -> Self {
        Self::burning_at(usize::MAX)
    }

    /// How many steps were taken.
    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    /// A step; whoever takes the last one stays there.
    pub(crate) async fn step(&self) {
        if self.steps.fetch_add(1, Ordering::SeqCst) >= self.burns_at {
            self.die().await;
        }
    }

    pub(crate) async fn die(&self) {
        self.burnt.cancel();
        std::future::pending::<()>().await;
    }

    /// Runs a process of its own until it is done or dies; `None` if it died.
    pub(crate) fn process<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.burnt.cancelled() => None,
                done = work => Some(done),
            }
        })
        // Every task of the process is dropped where it stands.
    }
}

/// What is outside the processes and outlives them.
#[derive(Default)]
pub(crate) struct World {
    counts: Mutex<BTreeMap<String, usize>>,
    keys: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl World {
    pub(crate) fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn counted(&self, what: &str) -> usize {
        self.counts.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    pub(crate) fn saw_key(&self, what: &str, key: &str) {
        self.keys
            .lock()
            .unwrap()
            .entry(what.to_owned())
            .or_default()
            .insert(key.to_owned());
    }

    pub(crate) fn keys(&self, what: &str) -> usize {
        self.keys.lock().unwrap().get(what).map_or(0, BTreeSet::len)
    }
}

/// A store that outlives its processes, as one process sees it: it may die before and after each write.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) inner: MemoryStore,
    pub(crate) fuse: Fuse,
    pub(crate) world: Arc<World>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(crate) fn new(inner: &MemoryStore, fuse: &Fuse, world: &Arc<World>) -> Self {
        Self {
            inner: inner.clone(),
            fuse: fuse.clone(),
            world: Arc::clone(world),
        }
    }
}

#[everturn_ai::async_trait]
impl Journal for Shared {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()> {
        self.fuse.step().await;
        let entries: Vec<Value> = record.body["entries"].as_array().cloned().unwrap_or_default();
        self.inner.append(scope, key, record, guard).await?;
        self.world.count("records");
        for entry in entries {
            self.world.count(entry["kind"].as_str().unwrap_or_default());
        }
        self.fuse.step().await;
        Ok(())
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        self.fuse.step().await;
        self.inner.read(scope, key).await
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        self.fuse.step().await;
        self.world.count("cleared");
        self.inner.clear(scope, key).await
    }

    async fn sweep(&self, before: Timestamp) -> Result<u64> {
        self.world.count("swept");
        self.inner.sweep(before).await
    }
}

#[everturn_ai::async_trait]
impl SessionStore for Shared {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        self.inner.get(scope, id, detail).await
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        self.inner.latest(scope, session, detail).await
    }

    async fn save(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
    ) -> Result<Option<Snapshot>> {
        self.fuse.step().await;
        let saved = self.inner.save(scope, id, precondition, mutation).await?;
        self.fuse.step().await;
        Ok(saved)
    }

    async fn commit(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        self.fuse.step().await;
        let saved = self
            .inner
            .commit(scope, id, precondition, mutation, journals)
            .await?;
        self.fuse.step().await;
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
        self.inner.pending(query).await
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        self.inner.watch(scope, id)
    }

    fn can_watch(&self) -> bool {
        true
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }
}

/// A registry whose model answers by how often tools have answered, and may die before and after it does.
pub(crate) fn registry(
    fuse: &Fuse,
    world: &Arc<World>,
    answer: impl Fn(usize) -> ModelResponse + Send + Sync + 'static,
) -> Registry {
    registry_of(fuse, world, move |request| {
        let answers = request
            .messages
            .iter()
            .filter(|message| message.role() == Role::Tool);
        answer(answers.count())
    })
}

/// A registry whose model answers by what it is asked, and may die before and after it does.
pub(crate) fn registry_of(
    fuse: &Fuse,
    world: &Arc<World>,
    answer: impl Fn(&ModelRequest) -> ModelResponse + Send + Sync + 'static,
) -> Registry {
    let registry = Registry::new();
    let (fuse, world, answer) = (fuse.clone(), Arc::clone(world), Arc::new(answer));
    define_model(
        &registry,
        "cook",
        ModelInfo::default(),
        move |request, _emitter, _context| {
            let (fuse, world, answer) = (fuse.clone(), Arc::clone(&world), Arc::clone(&answer));
            async move {
                fuse.step().await;
                world.count("model");
                let response = answer(&request);
                fuse.step().await;
                Ok(response)
            }
        },
    )
    .unwrap();
    set_default_model(&registry, "cook");
    registry
}

/// The session that all processes talk about.
pub(crate) fn session() -> AgentInit {
    AgentInit {
        session_id: Some("s".into()),
        ..AgentInit::default()
    }
}

/// Runs one input of the session to its end.
pub(crate) async fn turn<S: CustomState>(
    agent: &Agent<S>,
    input: impl Into<AgentInput>,
) -> Result<AgentOutput> {
    let mut connection = agent.connect(session());
    connection.send(input).await?;
    connection.close();
    while connection.next().await.is_some() {}
    connection.output().await
}

/// The session's latest row.
pub(crate) fn latest(store: &MemoryStore) -> Option<Snapshot> {
    let read = async { store.latest(&Scope::default(), &"s".into(), Detail::Whole).await };
    Fuse::never().process(read).unwrap().unwrap()
}

/// How many journals there are.
pub(crate) fn journals(store: &MemoryStore) -> u64 {
    // Of a copy, so to speak: everything is older than the end of time.
    let text = format!("{store:?}");
    let count = text.split("journals: ").nth(1).unwrap();
    count
        .chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap()
}
