//! Handles on a store with the tenant, and with the session, of their calls.

use std::sync::Arc;

use everturn_core::Result;

use crate::storage::snapshot::Transition;
use crate::store::{
    Deletion, Detail, JournalKey, MAX_PAGE, Page, Precondition, Scope, SessionQuery, SessionStore,
    SessionSummary, SnapshotQuery, StatusStream,
};
use crate::{SessionId, Snapshot, SnapshotId};

/// A store as one tenant sees it. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct TenantStore {
    store: Arc<dyn SessionStore>,
    scope: Scope,
}

impl TenantStore {
    pub(crate) fn new(store: Arc<dyn SessionStore>, scope: Scope) -> Self {
        Self { store, scope }
    }

    pub(crate) fn store(&self) -> &Arc<dyn SessionStore> {
        &self.store
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the session with this id, whether it has snapshots or not.
    pub(crate) fn session(&self, id: SessionId) -> StoredSession {
        StoredSession {
            tenant: self.clone(),
            id,
        }
    }

    pub(crate) async fn get(&self, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        self.store.get(&self.scope, id, detail).await
    }

    /// Changes a stored snapshot; returns it as written, or `None` if nothing was written.
    ///
    /// # Errors
    /// As [`SessionStore::commit`].
    pub(crate) async fn change(&self, id: &SnapshotId, transition: Transition) -> Result<Option<Snapshot>> {
        self.commit(id, Precondition::None, transition, &[]).await
    }

    /// Like [`TenantStore::change`], under a precondition, for a snapshot that holds the turns of these
    /// journals.
    pub(crate) async fn commit(
        &self,
        id: &SnapshotId,
        precondition: Precondition,
        transition: Transition,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        self.store
            .commit(&self.scope, Some(id), precondition, transition.into(), journals)
            .await
    }

    pub(crate) async fn list(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        self.store.list(&self.scope, query).await
    }

    pub(crate) async fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        self.store.sessions(&self.scope, query).await
    }

    pub(crate) async fn children(&self, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        self.store.children(&self.scope, id).await
    }

    pub(crate) async fn delete(&self, deletion: &Deletion) -> Result<u64> {
        self.store.delete(&self.scope, deletion).await
    }

    pub(crate) fn watch(&self, id: &SnapshotId) -> Option<StatusStream> {
        self.store.watch(&self.scope, id)
    }
}

/// One session of one tenant in a store. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct StoredSession {
    tenant: TenantStore,
    id: SessionId,
}

impl StoredSession {
    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    pub(crate) fn tenant(&self) -> &TenantStore {
        &self.tenant
    }

    /// Returns whether continuing this snapshot begins a branch: another snapshot follows it, or it is
    /// superseded.
    pub(crate) async fn is_followed(&self, snapshot: &Snapshot) -> Result<bool> {
        Ok(snapshot.orphaned || !self.successors(Some(snapshot)).await?.is_empty())
    }

    /// Returns the successors of a snapshot, or of the session's beginning, as [`Precondition::Unfollowed`]
    /// defines them.
    pub(crate) async fn successors(&self, of: Option<&Snapshot>) -> Result<Vec<SnapshotId>> {
        let condition = Precondition::unfollowed(of.map(|snapshot| snapshot.snapshot_id.clone()));
        let candidates = match of {
            Some(snapshot) => {
                let mut children = self.tenant.children(&snapshot.snapshot_id).await?;
                let is_later = |child: &Snapshot| child.position() > snapshot.position();
                children.retain(|child| child.session_id.as_ref() == Some(&self.id) && is_later(child));
                children
            }
            None => self.snapshots().await?,
        };
        let counts = |snapshot: &Snapshot| {
            !snapshot.orphaned && condition.counts(&snapshot.snapshot_id, snapshot.status)
        };
        let successors = candidates.into_iter().filter(counts);
        Ok(successors.map(|snapshot| snapshot.snapshot_id).collect())
    }

    /// Reads the snapshot at the end of the branch that continues this one, by way of the first successor of
    /// each; `None` if nothing follows it.
    pub(crate) async fn end_of_branch(&self, from: &SnapshotId) -> Result<Option<Snapshot>> {
        let mut end = None;
        let mut next = Some(from.clone());
        // A successor is later than the snapshot before it, so the loop terminates.
        while let Some(id) = next.take() {
            let Some(snapshot) = self.tenant.get(&id, Detail::Metadata).await? else {
                break;
            };
            next = self.successors(Some(&snapshot)).await?.into_iter().next();
            end = next.clone().or(end);
        }
        match end {
            Some(end) => self.tenant.get(&end, Detail::Whole).await,
            None => Ok(None),
        }
    }

    /// Reads the latest snapshot of the session that is not a head.
    pub(crate) async fn latest_listed(&self, detail: Detail) -> Result<Option<Snapshot>> {
        let mut query = SnapshotQuery::of(self.id.clone()).limit(1);
        loop {
            let page = self.tenant.list(&query).await?;
            if let Some(latest) = page.items.iter().find(|snapshot| !snapshot.is_head()) {
                return self.tenant.get(&latest.snapshot_id, detail).await;
            }
            query.after = page.next;
            if query.after.is_none() {
                return Ok(None);
            }
            // Most policies take a snapshot every few turns.
            query.limit = (query.limit * 4).min(MAX_PAGE);
        }
    }

    /// Returns all snapshots of the session that are not superseded, without their states.
    async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let mut query = SnapshotQuery::of(self.id.clone()).limit(MAX_PAGE);
        let mut found = Vec::new();
        loop {
            let page = self.tenant.list(&query).await?;
            found.extend(page.items);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(found),
            }
        }
    }
}
