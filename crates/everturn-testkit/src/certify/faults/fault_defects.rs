//! Stores that do not notice external faults, to show that the kit detects them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use everturn_agent::store::{
    Deletion, Detail, Journal, JournalKey, MemoryStore, Mutation, Page, PendingPage, PendingQuery,
    Precondition, Scope, SessionQuery, SessionStore, SessionSummary, SnapshotQuery, StatusStream, TurnLocks,
    UsageLedger,
};
use everturn_agent::{Clock, SessionId, Snapshot, SnapshotId};
use everturn_ai::Message;
use everturn_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::{Mutex as Queue, watch};

use super::{Fault, Faults};

/// The defect of a [`DefectiveBackend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultDefect {
    /// Makes saves wait for the lock one after the other, each for the whole timeout.
    WaitsInTurn,
    /// Makes reads wait for the lock.
    ReadsWait,
    /// Reads a damaged body as valid.
    AcceptedDamage,
    /// Resumes the snapshot before a missing one.
    ForgottenTip,
}

impl FaultDefect {
    /// Every defect.
    pub const ALL: [Self; 4] = [
        Self::WaitsInTurn,
        Self::ReadsWait,
        Self::AcceptedDamage,
        Self::ForgottenTip,
    ];

    /// The promise that the defect breaks.
    pub fn broken_promise(self) -> &'static str {
        match self {
            Self::WaitsInTurn | Self::ReadsWait => "a deadline is kept while the lock is held elsewhere",
            Self::AcceptedDamage => "damage is named",
            Self::ForgottenTip => "a missing tip is named",
        }
    }
}

/// In-memory data of a store, with a lock that others may hold, and data that can be damaged.
#[derive(Debug, Clone)]
pub struct DefectiveBackend(Arc<Backend>);

#[derive(Debug)]
struct Backend {
    defect: Option<FaultDefect>,
    rows: MemoryStore,
    is_held: watch::Sender<bool>,
    queue: Queue<()>,
    damaged: Mutex<HashSet<SnapshotId>>,
    missing: Mutex<Option<(SessionId, SnapshotId)>>,
}

impl DefectiveBackend {
    /// How long a save waits for the lock.
    const TIMEOUT: Duration = Duration::from_millis(200);

    /// Data with this defect; `None` for a store without defects.
    pub fn new(defect: Option<FaultDefect>) -> Self {
        Self(Arc::new(Backend {
            defect,
            rows: MemoryStore::new(),
            is_held: watch::Sender::new(false),
            queue: Queue::default(),
            damaged: Mutex::default(),
            missing: Mutex::default(),
        }))
    }

    fn has(&self, defect: FaultDefect) -> bool {
        self.0.defect == Some(defect)
    }

    async fn wait_for_lock(&self, deadline: Instant) -> Result<()> {
        let mut held = self.0.is_held.subscribe();
        let free = async { held.wait_for(|held| !*held).await.map(drop) };
        match tokio::time::timeout_at(deadline.into(), free).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::unavailable("another holds the lock")),
        }
    }

    async fn wait_to_read(&self) {
        if self.has(FaultDefect::ReadsWait) {
            // Bounded, because the lock is released only after the reads.
            let _ = self.wait_for_lock(Instant::now() + Duration::from_secs(8)).await;
        }
    }

    /// The data that a reader receives instead of a stored snapshot.
    fn given(&self, row: Option<Snapshot>) -> Result<Option<Snapshot>> {
        let Some(mut row) = row else {
            return Ok(None);
        };
        let damaged = self.0.damaged.lock();
        if !damaged.contains(&row.snapshot_id) {
            return Ok(Some(row));
        }
        if !self.has(FaultDefect::AcceptedDamage) {
            let session = row
                .session_id
                .map(|session| session.to_string())
                .unwrap_or_default();
            return Err(Error::data_loss(format!(
                "snapshot '{}' of session '{session}' is damaged",
                row.snapshot_id
            )));
        }
        if let Some(state) = &mut row.state {
            state.messages.push(Message::user("an altered message"));
        }
        Ok(Some(row))
    }

    fn check_tip(&self, session: Option<&SessionId>) -> Result<()> {
        let missing = self.0.missing.lock();
        match &*missing {
            Some((of, id))
                if session.is_none_or(|session| session == of) && !self.has(FaultDefect::ForgottenTip) =>
            {
                Err(Error::data_loss(format!(
                    "session '{of}' has lost its latest snapshot '{id}'"
                )))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Faults for DefectiveBackend {
    async fn open(&self) -> Arc<dyn SessionStore> {
        Arc::new(self.clone())
    }

    fn busy_timeout(&self) -> Duration {
        Self::TIMEOUT
    }

    async fn hold_lock(&self) -> Fault<Box<dyn Send>> {
        struct Held(DefectiveBackend);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.0.is_held.send_replace(false);
            }
        }
        self.0.is_held.send_replace(true);
        Fault::Done(Box::new(Held(self.clone())))
    }

    async fn damage(&self, snapshot: &SnapshotId) -> Fault<()> {
        let mut damaged = self.0.damaged.lock();
        damaged.insert(snapshot.clone());
        Fault::Done(())
    }

    async fn remove(&self, snapshot: &SnapshotId) -> Fault<()> {
        let scope = Scope::default();
        let row = self.0.rows.get(&scope, snapshot, Detail::Metadata).await;
        let session = row.ok().flatten().and_then(|row| row.session_id);
        let gone = Deletion::Snapshots(vec![snapshot.clone()]);
        let deleted = self.0.rows.delete(&scope, &gone).await;
        debug_assert!(
            matches!(deleted, Ok(1)),
            "a snapshot that is there can be deleted"
        );
        let mut missing = self.0.missing.lock();
        *missing = session.map(|session| (session, snapshot.clone()));
        Fault::Done(())
    }
}

#[async_trait]
impl SessionStore for DefectiveBackend {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        self.wait_to_read().await;
        self.given(self.0.rows.get(scope, id, detail).await?)
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        self.wait_to_read().await;
        self.check_tip(Some(session))?;
        self.given(self.0.rows.latest(scope, session, detail).await?)
    }

    async fn commit(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        let asked = Instant::now();
        if self.has(FaultDefect::WaitsInTurn) {
            let _turn = self.0.queue.lock().await;
            self.wait_for_lock(Instant::now() + Self::TIMEOUT).await?;
        } else {
            self.wait_for_lock(asked + Self::TIMEOUT).await?;
        }
        if precondition != Precondition::None {
            self.check_tip(None)?;
        }
        self.0
            .rows
            .commit(scope, id, precondition, mutation, journals)
            .await
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        self.0.rows.list(scope, query).await
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        self.0.rows.sessions(scope, query).await
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        self.0.rows.children(scope, id).await
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        self.0.rows.delete(scope, deletion).await
    }

    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        self.0.rows.tenants(after).await
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        self.0.rows.pending(query).await
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.0.rows.journal()
    }

    fn ledger(&self) -> Option<&dyn UsageLedger> {
        self.0.rows.ledger()
    }

    fn clock(&self) -> Clock {
        self.0.rows.clock()
    }

    fn turn_locks(&self) -> Option<&dyn TurnLocks> {
        self.0.rows.turn_locks()
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        self.0.rows.watch(scope, id)
    }

    fn can_watch(&self) -> bool {
        self.0.rows.can_watch()
    }
}
