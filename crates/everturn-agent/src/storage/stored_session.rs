//! Handles on a store with the tenant, and with the session, of their calls; rewinds of a session.

use std::collections::HashSet;
use std::sync::Arc;

use everturn_core::Result;
use futures::stream::{self, Stream, TryStreamExt};

use crate::storage::snapshot::{Rewind, Transition};
use crate::store::{
    Cursor, Deletion, Detail, JournalKey, MAX_PAGE, Page, Precondition, Scope, SessionQuery, SessionStore,
    SessionSummary, SnapshotQuery, StatusStream, tip_moved,
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

    /// Reads the pages of a query, one after the other.
    pub(crate) fn pages(&self, query: SnapshotQuery) -> impl Stream<Item = Result<Vec<Snapshot>>> + Send {
        stream::try_unfold(Some(query), move |query| async move {
            let Some(mut query): Option<SnapshotQuery> = query else {
                return Ok(None);
            };
            let page = self.list(&query).await?;
            query.after = page.next;
            let rest = query.after.is_some().then_some(query);
            Ok(Some((page.items, rest)))
        })
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
///
/// Writing a snapshot is one atomic step, and a rewind marks many. So the decision is written in a single
/// snapshot: the session's latest records which snapshots are kept until every other one is marked. Every
/// reader of the session's latest snapshot finds an unfinished rewind there and finishes it first.
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
        let query = SnapshotQuery::of(self.id.clone()).limit(MAX_PAGE);
        self.tenant.pages(query).try_concat().await
    }
}

/// What happens to the snapshots after a resumed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timeline {
    /// The later snapshots stay as they are, and the next one begins a new branch.
    #[default]
    Branching,
    /// The later snapshots become [`orphaned`](crate::Snapshot::orphaned): they are kept, and listed only on
    /// request.
    ///
    /// This happens with the first snapshot after the resumption. It is written first, as the session's new
    /// tip, and records that the other snapshots are yet to be marked. So nothing changes if the turn fails,
    /// and whenever the process dies, a client that resumes the session finds the old tip or the new one. The
    /// next turn on the session, or the next listing of it, writes the missing marks.
    ///
    /// With [`ContentAddressed`](crate::SnapshotIds::ContentAddressed) ids a turn may reach a state that is
    /// already stored. Then the existing snapshot becomes the tip: the snapshots that lead to it are kept,
    /// even if they were superseded, and all others become superseded. Later snapshots continue its
    /// numbering.
    ///
    /// Resuming a superseded snapshot recovers it and the snapshots that lead to it, and supersedes those
    /// that had replaced them.
    Linear,
}

impl StoredSession {
    /// Reads the session's latest snapshot, after finishing a rewind that is unfinished.
    ///
    /// # Errors
    /// The store's own errors; `DATA_LOSS` if the unfinished rewind cannot be read.
    pub(crate) async fn tip(&self, detail: Detail) -> Result<Option<Snapshot>> {
        let tenant = self.tenant();
        // After a rewind is finished the latest may be another snapshot, with another rewind.
        loop {
            let latest = tenant.store().latest(tenant.scope(), self.id(), detail).await?;
            let Some(latest) = latest else {
                return Ok(None);
            };
            let Some(rewind) = latest.unfinished_rewind()? else {
                return Ok(Some(latest));
            };
            // Boxed because the future is large and seldom needed.
            Box::pin(self.finish_rewind(rewind, &latest)).await?;
        }
    }

    /// Returns the rewind that keeps the snapshots leading to `to`. They part from the currently kept ones at
    /// the first of them that is not superseded.
    pub(crate) async fn rewind_to(&self, to: &SnapshotId) -> Result<Rewind> {
        let mut seen = HashSet::new();
        let mut next = Some(to.clone());
        let mut fork = None;
        // Stored parents may form a cycle, which must not be followed forever.
        while let Some(id) = next.take().filter(|id| seen.insert(id.clone())) {
            let Some(ancestor) = self.tenant().get(&id, Detail::Metadata).await? else {
                break;
            };
            if ancestor.orphaned {
                next = ancestor.parent_id;
            } else {
                fork = Some(Cursor::at(&ancestor));
            }
        }
        Ok(Rewind::new(to.clone(), fork))
    }

    /// Keeps the snapshots that lead to `snapshot`, which exists already, and supersedes those after it.
    /// `tip` is the latest snapshot known to the caller.
    ///
    /// # Errors
    /// `ABORTED` if `tip` is not the latest snapshot any more; the store's own errors.
    pub(crate) async fn move_tip_to(&self, snapshot: &Snapshot, tip: &SnapshotId) -> Result<()> {
        // Reading the tip also finishes an earlier rewind, of which two must not overlap.
        let latest = self.tip(Detail::Metadata).await?;
        let latest_id = latest.as_ref().map(|latest| &latest.snapshot_id);
        let Some(tip) = latest.as_ref().filter(|latest| latest.snapshot_id == *tip) else {
            return Err(tip_moved(self.id(), Some(tip), latest_id));
        };
        let rewind = self.rewind_to(&snapshot.snapshot_id).await?;
        // The decision must be in the snapshot that is then the session's latest.
        let recovers = snapshot.position() > tip.position();
        let bearer = if recovers { snapshot } else { tip };
        let decide = Transition::DecideRewind {
            rewind: rewind.clone(),
            recovers,
        };
        // Compared inside the commit: a turn elsewhere may have moved the tip since it was read.
        let at_tip = Precondition::Tip(Some(tip.snapshot_id.clone()));
        let decided = self
            .tenant()
            .commit(&bearer.snapshot_id, at_tip, decide, &[])
            .await?;
        match decided {
            Some(bearer) => self.finish_rewind(&rewind, &bearer).await,
            None => Err(tip_moved(self.id(), Some(&tip.snapshot_id), None)),
        }
    }

    /// Marks every snapshot that the unfinished rewind of the session's latest snapshot, `tip`, supersedes.
    ///
    /// All readers that find the rewind make the same marks, so several may do it at once. A later snapshot
    /// is not touched: its writer had finished this rewind first.
    pub(crate) async fn finish_rewind(&self, rewind: &Rewind, tip: &Snapshot) -> Result<()> {
        let snapshots = self.after(rewind.fork(), tip).await?;
        let kept = rewind.kept(&snapshots);
        let is_kept = |snapshot: &Snapshot| {
            kept.as_ref()
                .map_or(!snapshot.orphaned, |kept| kept.contains(&snapshot.snapshot_id))
        };
        let others = || {
            snapshots
                .iter()
                .filter(|snapshot| snapshot.snapshot_id != tip.snapshot_id)
        };
        // Snapshots are recovered before others are superseded: in between there is a branch, but nothing is
        // lost.
        let recovered = others()
            .filter(|snapshot| is_kept(snapshot) && (snapshot.orphaned || snapshot.has_unfinished_rewind()));
        let left_behind = others().filter(|snapshot| !is_kept(snapshot) && !snapshot.orphaned);
        for (snapshot, orphaned) in recovered
            .map(|snapshot| (snapshot, false))
            .chain(left_behind.map(|snapshot| (snapshot, true)))
        {
            if !self.is_unfinished(rewind, tip).await? {
                return Ok(());
            }
            let orphan = Transition::Orphan { orphaned };
            self.tenant().change(&snapshot.snapshot_id, orphan).await?;
        }
        let finish = Transition::FinishRewind {
            rewind: rewind.clone(),
            orphaned: !is_kept(tip),
        };
        self.tenant().change(&tip.snapshot_id, finish).await.map(drop)
    }

    /// Returns whether the rewind is still unfinished: another reader may have finished it, and the session
    /// may have moved on since.
    async fn is_unfinished(&self, rewind: &Rewind, tip: &Snapshot) -> Result<bool> {
        match self.tenant().get(&tip.snapshot_id, Detail::Metadata).await? {
            Some(tip) => Ok(tip.unfinished_rewind()? == Some(rewind)),
            None => Ok(false),
        }
    }

    /// Returns the session's snapshots after this one, or all, up to the tip.
    async fn after(&self, fork: Option<&Cursor>, tip: &Snapshot) -> Result<Vec<Snapshot>> {
        let mut query = SnapshotQuery::of(self.id().clone())
            .oldest_first()
            .with_orphaned()
            .limit(MAX_PAGE);
        query.after = fork.cloned();
        let mut found = Vec::new();
        loop {
            let page = self.tenant().list(&query).await?;
            let count = page.items.len();
            found.extend(
                page.items
                    .into_iter()
                    .take_while(|snapshot| snapshot.position() <= tip.position()),
            );
            match page.next {
                Some(next) if count > 0 && next.position() < tip.position() => query.after = Some(next),
                _ => return Ok(found),
            }
        }
    }
}
