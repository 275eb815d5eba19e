//! A store for tests that fails on request, and dies with its process.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everturn_agent::store::{
    Deletion, Detail, Journal, JournalGuard, JournalKey, JournalPage, JournalQuery, JournalRecord,
    MemoryStore, Mutation, Page, PendingPage, PendingQuery, Precondition, Scope, SessionQuery, SessionStore,
    SessionSummary, SnapshotQuery, StatusStream, TurnLocks, UsageLedger,
};
use everturn_agent::{Clock, SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};
use everturn_testkit::Gate;
use serde_json::Value;

use super::fuse::{Fuse, World};

/// A store whose snapshots can be made to fail, and that counts what was written. It may outlive its
/// processes: then it is the store as one of them sees it, which may die before and after each write.
#[derive(Clone, Default)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    fault: Arc<Faults>,
    fuse: Fuse,
    /// Journal records are counted here too, by kind.
    world: Arc<World>,
}

#[derive(Default)]
pub(crate) struct Faults {
    saves_fail: AtomicBool,
    /// How many saves succeed before they fail, where that is counted.
    saves_left: AtomicUsize,
    reads_fail: AtomicBool,
    cannot_watch: AtomicBool,
    whole_reads: AtomicUsize,
    saves: AtomicUsize,
    records: AtomicUsize,
    cleared: AtomicUsize,
    /// Where the next save waits.
    held: Mutex<Option<(Held, Gate)>>,
}

/// When a save is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Before anything is written.
    Before,
    /// After it is written and before its caller is answered.
    After,
}

impl FaultyStore {
    /// Another way to the same snapshots, which fails on its own.
    pub(crate) fn elsewhere(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            ..Self::default()
        }
    }

    /// The snapshots as a process sees them.
    pub(crate) fn shared(inner: &MemoryStore, fuse: &Fuse, world: &Arc<World>) -> Self {
        Self {
            inner: inner.clone(),
            fuse: fuse.clone(),
            world: Arc::clone(world),
            ..Self::default()
        }
    }

    pub(crate) fn fail_saves(&self, fail: bool) {
        self.fault.saves_left.store(0, Ordering::SeqCst);
        self.fault.saves_fail.store(fail, Ordering::SeqCst);
    }

    /// Lets so many saves succeed, and none after them.
    pub(crate) fn fail_saves_after(&self, count: usize) {
        self.fail_saves(true);
        self.fault.saves_left.store(count, Ordering::SeqCst);
    }

    /// Whether this save is one that fails.
    fn save_fails(&self) -> bool {
        let is_left = |left: usize| left.checked_sub(1);
        self.fault.saves_fail.load(Ordering::SeqCst)
            && self
                .fault
                .saves_left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_left)
                .is_err()
    }

    /// Holds the next save at a gate.
    pub(crate) fn hold_next_save(&self, moment: Held) -> Gate {
        let gate = Gate::new();
        *self.fault.held.lock().unwrap() = Some((moment, gate.clone()));
        gate
    }

    pub(crate) fn fail_reads(&self, fail: bool) {
        self.fault.reads_fail.store(fail, Ordering::SeqCst);
    }

    pub(crate) fn without_watching(self) -> Self {
        self.fault.cannot_watch.store(true, Ordering::SeqCst);
        self
    }

    /// How many snapshots were written.
    pub(crate) fn saves(&self) -> usize {
        self.fault.saves.load(Ordering::SeqCst)
    }

    /// How many records of journals were written.
    pub(crate) fn records(&self) -> usize {
        self.fault.records.load(Ordering::SeqCst)
    }

    /// How many journals were dropped.
    pub(crate) fn cleared(&self) -> usize {
        self.fault.cleared.load(Ordering::SeqCst)
    }

    /// How many snapshots were read with their states.
    pub(crate) fn whole_reads(&self) -> usize {
        self.fault.whole_reads.load(Ordering::SeqCst)
    }

    fn read_snapshot(&self, detail: Detail) -> Result<()> {
        if detail == Detail::Whole {
            self.fault.whole_reads.fetch_add(1, Ordering::SeqCst);
        }
        self.read()
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
        self.read_snapshot(detail)?;
        self.inner.get(scope, id, detail).await
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        self.read_snapshot(detail)?;
        self.inner.latest(scope, session, detail).await
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
        let held = self.fault.held.lock().unwrap().take();
        if let Some((Held::Before, gate)) = &held {
            gate.pass().await;
        }
        if self.save_fails() {
            return Err(Error::resource_exhausted("the disk is full"));
        }
        // A mutation must be pure: a store under contention runs it again.
        let mutation = Mutation::new(move |snapshot| {
            let first = mutation.apply(snapshot)?;
            let second = mutation.apply(snapshot)?;
            assert_eq!(first, second, "a mutation depends on something else than the row");
            Ok(second)
        });
        let saved = self
            .inner
            .commit(scope, id, precondition, mutation, journals)
            .await?;
        if saved.is_some() {
            self.fault.saves.fetch_add(1, Ordering::SeqCst);
            self.fault.cleared.fetch_add(journals.len(), Ordering::SeqCst);
        }
        if let Some((Held::After, gate)) = &held {
            gate.pass().await;
        }
        self.fuse.step().await;
        Ok(saved)
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let page = self.inner.list(scope, query).await?;
        if query.detail == Detail::Whole {
            let read = page.items.len();
            self.fault.whole_reads.fetch_add(read, Ordering::SeqCst);
        }
        Ok(page)
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

    fn ledger(&self) -> Option<&dyn UsageLedger> {
        self.inner.ledger()
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn turn_locks(&self) -> Option<&dyn TurnLocks> {
        self.inner.turn_locks()
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
        self.fuse.step().await;
        let entries: Vec<Value> = record.body["entries"].as_array().cloned().unwrap_or_default();
        Journal::append(&self.inner, scope, key, record, guard).await?;
        self.fault.records.fetch_add(1, Ordering::SeqCst);
        for entry in entries {
            self.world.count(entry["kind"].as_str().unwrap_or_default());
        }
        self.world.count("records");
        self.fuse.step().await;
        Ok(())
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        self.fuse.step().await;
        FaultyStore::read(self)?;
        Journal::read(&self.inner, scope, key).await
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        self.fuse.step().await;
        self.fault.cleared.fetch_add(1, Ordering::SeqCst);
        self.world.count("cleared");
        Journal::clear(&self.inner, scope, key).await
    }

    async fn unfinished(&self, query: &JournalQuery) -> Result<JournalPage> {
        self.fuse.step().await;
        FaultyStore::read(self)?;
        self.inner.unfinished(query).await
    }

    async fn sweep(&self, before: jiff::Timestamp) -> Result<u64> {
        self.world.count("swept");
        Journal::sweep(&self.inner, before).await
    }
}
