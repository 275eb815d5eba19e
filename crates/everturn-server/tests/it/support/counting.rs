//! A store that records its calls.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everturn_agent::store::{
    Deletion, Detail, Journal, JournalKey, Mutation, Page, PendingPage, PendingQuery, Precondition, Scope,
    SessionQuery, SessionStore, SessionSummary, SnapshotQuery, StatusStream, TurnLocks, UsageLedger,
};
use everturn_agent::{Clock, SessionId, Snapshot, SnapshotId};
use everturn_core::Result;

/// Another store, and the kinds of the calls made to it, in order. Cloning gives another handle to the same.
#[derive(Clone)]
pub(crate) struct CountingStore {
    inner: Arc<dyn SessionStore>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl CountingStore {
    pub(crate) fn new(inner: impl SessionStore) -> Self {
        Self {
            inner: Arc::new(inner),
            calls: Arc::default(),
        }
    }

    /// The calls since the start, or since the last reset.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn forget(&self) {
        self.calls.lock().unwrap().clear();
    }

    fn note(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl SessionStore for CountingStore {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        self.note(format!("get {detail:?}"));
        self.inner.get(scope, id, detail).await
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        self.note(format!("latest {detail:?}"));
        self.inner.latest(scope, session, detail).await
    }

    async fn save(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
    ) -> Result<Option<Snapshot>> {
        self.note("save");
        self.inner.save(scope, id, precondition, mutation).await
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        self.note(format!("list {:?}", query.detail));
        self.inner.list(scope, query).await
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        self.note("sessions");
        self.inner.sessions(scope, query).await
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        self.note("children");
        self.inner.children(scope, id).await
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        self.note("delete");
        self.inner.delete(scope, deletion).await
    }

    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        self.note("tenants");
        self.inner.tenants(after).await
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        self.note("pending");
        self.inner.pending(query).await
    }

    async fn commit(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        self.note("commit");
        self.inner
            .commit(scope, id, precondition, mutation, journals)
            .await
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner.journal()
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
        self.note("watch");
        self.inner.watch(scope, id)
    }

    fn can_watch(&self) -> bool {
        self.inner.can_watch()
    }
}

impl fmt::Debug for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CountingStore").field(&self.inner).finish()
    }
}
