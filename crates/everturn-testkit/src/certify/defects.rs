//! Stores that each break one promise, to show that the kit detects them.

mod ledger_defects;
mod lock_defects;

use async_trait::async_trait;
use everturn_agent::store::{
    Bookkeeping, Deletion, Detail, Journal, JournalGuard, JournalKey, JournalPage, JournalQuery,
    JournalRecord, KEPT, MemoryStore, Mutation, Order, Page, PendingPage, PendingQuery, Precondition, Scope,
    SessionQuery, SessionStore, SessionSummary, SnapshotQuery, StatusStream, TurnLocks, UsageLedger,
    close_accounts, drop_journals,
};
use everturn_agent::{Clock, SessionId, Snapshot, SnapshotId, SnapshotStatus};
use everturn_core::Result;
use futures::StreamExt;
use jiff::Timestamp;

/// The defect of a [`DefectiveStore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// Reads, computes and writes in three steps, and so loses concurrent writes.
    LostUpdate,
    /// Checks a precondition before it takes its lock instead of under it.
    LockThatDoesNotExclude,
    /// Checks a precondition only for new snapshots.
    UncheckedRewrite,
    /// Rejects a turn as soon as its snapshot is no longer the session's latest.
    DemandsTheLatest,
    /// Lets two turns follow one snapshot.
    BlindToSuccessors,
    /// Counts every child of a snapshot as its successor.
    CountsEveryChild,
    /// Searches for the successors of a snapshot before it takes its lock instead of under it.
    SuccessorSoughtEarly,
    /// Leaves out the end of a long conversation.
    TornWrite,
    /// Sends watchers the current status and no later one.
    DroppedNotification,
    /// Considers the snapshot with the greatest id the latest.
    WrongLatest,
    /// Breaks ties by the smallest id.
    WrongTie,
    /// Considers a superseded snapshot the latest.
    OrphanedLatest,
    /// Considers the last snapshot the latest although turns without one came after it.
    ForgottenHead,
    /// Lets a final snapshot change its status.
    MutableEnding,
    /// Mixes all tenants' snapshots.
    SharedTenants,
    /// Lists tenants without their readable names.
    NamelessTenants,
    /// Reports snapshots as deleted and keeps them.
    IdleDeletion,
    /// Starts every page at the beginning.
    LostCursor,
    /// Drops unknown fields.
    ForgetsUnknownFields,
    /// Drops the framework's bookkeeping.
    ForgetsBookkeeping,
    /// Finds the background runs of one tenant only.
    OverlooksRuns,
    /// Considers every background run silent.
    DeafToHeartbeats,
    /// Overwrites an existing record of a journal.
    OverwrittenRecord,
    /// Reports that no session has a journal.
    OverlookedRecords,
    /// Writes a record without checking its guard.
    UnguardedRecord,
    /// Writes a record of a background run without checking the lease.
    IgnoredLease,
    /// Keeps the journals of a deleted session.
    LeftoverJournals,
    /// Loses an expense that is recorded concurrently with another.
    LostExpense,
    /// Compares a budget before it takes its lock instead of under it.
    BudgetCheckedEarly,
    /// Compares the budget of a session with the usage at the start of the turn.
    SessionBudgetCheckedEarly,
    /// Keeps the account of a turn whose snapshot is stored.
    LeftoverAccount,
    /// Sweeps journals that are to be kept as long as their session.
    SweptRecords,
    /// Sweeps journals that hold calls with an unknown outcome.
    SweptOutcomes,
    /// Finds the unfinished turns of sessions that have a snapshot only.
    OverlooksFirstTurns,
    /// Grants a turn lock that another turn holds.
    SharedLock,
    /// Grants a turn lock although the snapshot has a successor.
    LateGrant,
    /// Grants a turn lock at a recalled snapshot regardless of the session's version.
    StaleRecall,
    /// Never lets a turn lock expire.
    EternalLock,
    /// Grants turn locks regardless of waiting turns.
    ForgottenQueue,
    /// Commits without checking the turn lock.
    UnfencedCommit,
    /// Writes records without checking the turn lock.
    UnfencedRecord,
}

impl Defect {
    /// Every defect.
    pub const ALL: [Self; 41] = [
        Self::LostUpdate,
        Self::LockThatDoesNotExclude,
        Self::UncheckedRewrite,
        Self::DemandsTheLatest,
        Self::BlindToSuccessors,
        Self::CountsEveryChild,
        Self::SuccessorSoughtEarly,
        Self::TornWrite,
        Self::DroppedNotification,
        Self::WrongLatest,
        Self::WrongTie,
        Self::OrphanedLatest,
        Self::ForgottenHead,
        Self::MutableEnding,
        Self::SharedTenants,
        Self::NamelessTenants,
        Self::IdleDeletion,
        Self::LostCursor,
        Self::ForgetsUnknownFields,
        Self::ForgetsBookkeeping,
        Self::OverlooksRuns,
        Self::DeafToHeartbeats,
        Self::OverwrittenRecord,
        Self::OverlookedRecords,
        Self::UnguardedRecord,
        Self::IgnoredLease,
        Self::LeftoverJournals,
        Self::LostExpense,
        Self::BudgetCheckedEarly,
        Self::SessionBudgetCheckedEarly,
        Self::LeftoverAccount,
        Self::SweptRecords,
        Self::SweptOutcomes,
        Self::OverlooksFirstTurns,
        Self::SharedLock,
        Self::LateGrant,
        Self::StaleRecall,
        Self::EternalLock,
        Self::ForgottenQueue,
        Self::UnfencedCommit,
        Self::UnfencedRecord,
    ];

    /// Returns the promise that the defect breaks; it may break others too.
    pub fn broken_promise(self) -> &'static str {
        match self {
            Self::LostUpdate => "no update is lost under concurrent writers",
            Self::LockThatDoesNotExclude => "of many commits at one tip exactly one succeeds",
            Self::UncheckedRewrite => "a precondition holds for rewrites as well",
            Self::DemandsTheLatest => "a branch does not block a turn elsewhere",
            Self::BlindToSuccessors => "of two turns that continue one snapshot the second is refused",
            Self::CountsEveryChild => "a snapshot that is orphaned or of another session follows no other",
            Self::SuccessorSoughtEarly => "of many turns that continue one snapshot exactly one succeeds",
            Self::TornWrite => "a state is never torn",
            Self::DroppedNotification => "a watcher receives the last change",
            Self::WrongLatest => "the latest snapshot is the one created last",
            Self::WrongTie => "snapshots of one moment are ordered by id",
            Self::OrphanedLatest => "an orphaned snapshot is never the latest",
            Self::ForgottenHead => "a session's head is its latest",
            Self::MutableEnding => "a final snapshot keeps its status",
            Self::SharedTenants => "a tenant's snapshots are out of others' reach",
            Self::NamelessTenants => "a tenant is listed with its readable name",
            Self::IdleDeletion => "deleted snapshots are in no view",
            Self::LostCursor => "a session's snapshots are listed in order, page by page",
            Self::ForgetsUnknownFields => "unknown fields and part kinds survive",
            Self::ForgetsBookkeeping => "the framework's bookkeeping in a snapshot survives",
            Self::OverlooksRuns => "background runs of all tenants are found until they are over",
            Self::DeafToHeartbeats => {
                "silent background runs are distinguished from those with a recent heartbeat"
            }
            Self::OverwrittenRecord => "a record number of a journal is written once",
            Self::OverlookedRecords => "a journal is read as it was written, in order",
            Self::UnguardedRecord => "a record is written only if its guard allows it",
            Self::IgnoredLease => "a record of a background run is written only under its lease",
            Self::LeftoverJournals => "a deleted session leaves no journal",
            Self::LostExpense => "no expense is lost under concurrent writers",
            Self::BudgetCheckedEarly => "a budget is not exceeded by concurrent writers",
            Self::SessionBudgetCheckedEarly => "a session's budget is not exceeded by concurrent writers",
            Self::LeftoverAccount => "a commit drops the account of its turn and no other",
            Self::SweptRecords => "a journal that is kept goes with its session, and not before",
            Self::SweptOutcomes => "a journal with an unknown outcome is not swept",
            Self::OverlooksFirstTurns => "the journals of unfinished turns are found, page by page",
            Self::SharedLock => "of many turns that ask for one place one holds the lock",
            Self::LateGrant => "a turn that is too late is not granted its lock",
            Self::StaleRecall => {
                "a turn at a recalled snapshot is granted its lock only while nothing has changed"
            }
            Self::EternalLock => "a lapsed lock goes to the next turn, and a renewed one does not",
            Self::ForgottenQueue => "waiting turns are granted the lock in order",
            Self::UnfencedCommit => "a turn that lost its lock cannot commit",
            Self::UnfencedRecord => "a turn that lost its lock cannot write a record",
        }
    }

    /// Applies the defect to the snapshot being written.
    fn damaged(self, mut row: Snapshot) -> Snapshot {
        if self == Self::ForgetsBookkeeping {
            row.bookkeeping = Bookkeeping::default();
        }
        match (self, &mut row.state) {
            (Self::TornWrite, Some(state)) if state.messages.len() > 40 => {
                state.messages = state.messages.truncate_to(40);
            }
            (Self::ForgetsUnknownFields, Some(state)) => {
                row.extra.clear();
                state.extra.clear();
            }
            _ => {}
        }
        row
    }
}

/// An in-memory store with a defect.
#[derive(Debug)]
pub struct DefectiveStore {
    store: MemoryStore,
    defect: Defect,
}

impl DefectiveStore {
    /// Creates a store with this defect.
    pub fn new(defect: Defect) -> Self {
        Self {
            store: MemoryStore::new(),
            defect,
        }
    }

    fn scope(&self, scope: &Scope) -> Scope {
        if self.defect == Defect::SharedTenants {
            Scope::new("everybody")
        } else {
            scope.clone()
        }
    }

    /// Yields, so that other tasks can interleave.
    async fn dawdle() {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the precondition as changed by the defect.
    fn misread(&self, precondition: Precondition) -> Precondition {
        match (self.defect, precondition) {
            (Defect::DemandsTheLatest, Precondition::Unfollowed { snapshot, .. }) => {
                Precondition::Tip(snapshot)
            }
            (Defect::BlindToSuccessors, Precondition::Unfollowed { .. }) => Precondition::None,
            (Defect::UnfencedCommit, Precondition::Held { and, .. }) => *and,
            (_, precondition) => precondition,
        }
    }

    /// Wraps the mutation so that the defect applies to its result.
    fn damaging(&self, mutation: Mutation) -> Mutation {
        let defect = self.defect;
        Mutation::new(move |existing| Ok(mutation.apply(existing)?.map(|row| defect.damaged(row))))
    }

    async fn write(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
    ) -> Result<Option<Snapshot>> {
        let scope = self.scope(scope);
        let precondition = self.misread(precondition);
        match (self.defect, id) {
            (Defect::LostUpdate, Some(id)) => {
                let seen = self.store.get(&scope, id, Detail::Whole).await?;
                let Some(row) = mutation.apply(seen.as_ref())? else {
                    return Ok(None);
                };
                Self::dawdle().await;
                self.store
                    .save(
                        &scope,
                        Some(id),
                        precondition,
                        Mutation::new(move |_| Ok(Some(row.clone()))),
                    )
                    .await
            }
            (Defect::LockThatDoesNotExclude, Some(id)) => {
                if let Precondition::Tip(expected) = &precondition
                    && let Some(row) = mutation.apply(None)?
                    && let Some(session) = &row.session_id
                {
                    let tip = self
                        .store
                        .latest(&scope, session, Detail::Metadata)
                        .await?
                        .map(|tip| tip.snapshot_id);
                    if tip != *expected {
                        return self.store.save(&scope, Some(id), precondition, mutation).await;
                    }
                    Self::dawdle().await;
                }
                self.store
                    .save(&scope, Some(id), Precondition::None, mutation)
                    .await
            }
            (Defect::UncheckedRewrite, Some(id)) => {
                let is_new = self.store.get(&scope, id, Detail::Metadata).await?.is_none();
                let checked = if is_new { precondition } else { Precondition::None };
                self.store.save(&scope, Some(id), checked, mutation).await
            }
            (Defect::CountsEveryChild | Defect::SuccessorSoughtEarly, Some(id)) => {
                let Precondition::Unfollowed {
                    snapshot: Some(continued),
                    ..
                } = &precondition
                else {
                    return self.store.save(&scope, Some(id), precondition, mutation).await;
                };
                let children = self.store.children(&scope, continued).await?;
                let counts = |child: &&Snapshot| {
                    self.defect == Defect::CountsEveryChild
                        || precondition.counts(&child.snapshot_id, child.status)
                };
                let found = children.iter().find(counts).map(|child| &child.snapshot_id);
                let session = children.first().and_then(|child| child.session_id.clone());
                precondition.check(&session.unwrap_or("s".into()), found.or(Some(continued)))?;
                Self::dawdle().await;
                self.store
                    .save(&scope, Some(id), Precondition::None, mutation)
                    .await
            }
            (Defect::MutableEnding, Some(id)) => {
                let before = self.store.get(&scope, id, Detail::Whole).await?;
                let after = mutation.apply(before.as_ref())?;
                if let (Some(before), Some(after)) = (&before, &after)
                    && before.status != after.status
                {
                    self.store
                        .delete(&scope, &Deletion::Snapshots(vec![id.clone()]))
                        .await?;
                }
                let put = Mutation::new(move |_| Ok(after.clone()));
                self.store.save(&scope, Some(id), precondition, put).await
            }
            _ => {
                self.store
                    .save(&scope, id, precondition, self.damaging(mutation))
                    .await
            }
        }
    }

    async fn all_rows(&self, scope: &Scope, session: &SessionId) -> Result<Vec<Snapshot>> {
        let mut query = SnapshotQuery::of(session.clone());
        query.order = Order::Oldest;
        query.orphaned = true;
        query.limit = usize::MAX;
        query.detail = Detail::Whole;
        Ok(self.store.list(scope, &query).await?.items)
    }
}

#[async_trait]
impl SessionStore for DefectiveStore {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        self.store.get(&self.scope(scope), id, detail).await
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        let scope = self.scope(scope);
        let latest = self.store.latest(&scope, session, detail).await?;
        match self.defect {
            Defect::WrongLatest => {
                let rows = self.all_rows(&scope, session).await?;
                Ok(rows.into_iter().max_by_key(|row| row.snapshot_id.clone()))
            }
            Defect::OrphanedLatest => {
                let rows = self.all_rows(&scope, session).await?;
                Ok(rows.into_iter().next_back())
            }
            Defect::ForgottenHead => {
                let rows = self.all_rows(&scope, session).await?;
                Ok(rows.into_iter().rfind(|row| !row.is_head() && !row.orphaned))
            }
            Defect::WrongTie => {
                let rows = self.all_rows(&scope, session).await?;
                let first = rows.into_iter().find(|row| {
                    latest
                        .as_ref()
                        .is_some_and(|tip| tip.created_at == row.created_at)
                });
                Ok(first)
            }
            _ => Ok(latest),
        }
    }

    async fn commit(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        let saved = self.write(scope, id, precondition, mutation).await?;
        if saved.is_some() {
            drop_journals(self, scope, journals).await;
            close_accounts(self, scope, journals).await;
        }
        Ok(saved)
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let mut query = query.clone();
        if self.defect == Defect::LostCursor && query.after.take().is_some() {
            let mut page = self.store.list(&self.scope(scope), &query).await?;
            page.next = None;
            return Ok(page);
        }
        self.store.list(&self.scope(scope), &query).await
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        self.store.sessions(&self.scope(scope), query).await
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        self.store.children(&self.scope(scope), id).await
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        match (self.defect, deletion) {
            (Defect::IdleDeletion, Deletion::Snapshots(ids)) => Ok(ids.len() as u64),
            (Defect::IdleDeletion, Deletion::Session(session)) => {
                Ok(self.all_rows(&self.scope(scope), session).await?.len() as u64)
            }
            (Defect::IdleDeletion, Deletion::Tenant) => Ok(0),
            (Defect::LeftoverJournals, Deletion::Session(session)) => {
                let rows = self.all_rows(&self.scope(scope), session).await?;
                let ids = rows.into_iter().map(|row| row.snapshot_id).collect();
                self.store
                    .delete(&self.scope(scope), &Deletion::Snapshots(ids))
                    .await
            }
            _ => self.store.delete(&self.scope(scope), deletion).await,
        }
    }

    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        let mut page = self.store.tenants(after).await?;
        if self.defect == Defect::NamelessTenants {
            let nameless = |tenant: Scope| Scope::new(tenant.as_str());
            page.items = page.items.into_iter().map(nameless).collect();
        }
        Ok(page)
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        let mut query = query.clone();
        if self.defect == Defect::DeafToHeartbeats {
            query.silent_since = None;
        }
        let page = self.store.pending(&query).await?;
        Ok(page.map(|mut page| {
            if self.defect == Defect::OverlooksRuns {
                page.items.retain(|run| run.scope == Scope::default());
            }
            page
        }))
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        let statuses = self.store.watch(&self.scope(scope), id)?;
        Some(match self.defect {
            Defect::DroppedNotification => statuses.take(1).chain(futures::stream::pending()).boxed(),
            _ => statuses,
        })
    }

    fn can_watch(&self) -> bool {
        true
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn UsageLedger> {
        Some(self)
    }

    fn clock(&self) -> Clock {
        self.store.clock()
    }

    fn turn_locks(&self) -> Option<&dyn TurnLocks> {
        Some(self)
    }
}

impl DefectiveStore {
    /// Returns the name of a journal in the store.
    fn journal_name(&self, key: &JournalKey) -> JournalKey {
        if self.defect == Defect::SweptRecords {
            return JournalKey::new(key.session().clone(), key.turn().replace(KEPT, ""));
        }
        key.clone()
    }
}

#[async_trait]
impl Journal for DefectiveStore {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()> {
        let scope = self.scope(scope);
        let key = &self.journal_name(key);
        if self.defect != Defect::OverwrittenRecord {
            let is_unguarded = match (self.defect, guard) {
                (Defect::UnguardedRecord, _) => true,
                (Defect::IgnoredLease, Some(guard)) => {
                    let reserved = self.store.get(&scope, &guard.reserved, Detail::Metadata).await?;
                    reserved.is_some_and(|run| run.status == SnapshotStatus::Pending)
                }
                _ => false,
            };
            let guard = guard.filter(|_| !is_unguarded).cloned().map(|mut guard| {
                if self.defect == Defect::UnfencedRecord {
                    guard.precondition = guard.precondition.on_snapshots().clone();
                }
                guard
            });
            return self.store.append(&scope, key, record, guard.as_ref()).await;
        }
        let mut records = Journal::read(&self.store, &scope, key).await?;
        records.retain(|other| other.sequence != record.sequence);
        records.push(record);
        self.store.clear(&scope, key).await?;
        for record in records {
            self.store.append(&scope, key, record, guard).await?;
        }
        Ok(())
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        self.store.read(&self.scope(scope), &self.journal_name(key)).await
    }

    fn is_known_empty(&self, scope: &Scope, session: &SessionId) -> bool {
        self.defect == Defect::OverlookedRecords || self.store.is_known_empty(&self.scope(scope), session)
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        self.store
            .clear(&self.scope(scope), &self.journal_name(key))
            .await
    }

    async fn unfinished(&self, query: &JournalQuery) -> Result<JournalPage> {
        let mut query = query.clone();
        query.scope = query.scope.as_ref().map(|scope| self.scope(scope));
        let mut page = self.store.unfinished(&query).await?;
        if self.defect == Defect::OverlooksFirstTurns {
            let mut known = Vec::new();
            for turn in page.items {
                let session = turn.key.session();
                if self
                    .store
                    .latest(&turn.scope, session, Detail::Metadata)
                    .await?
                    .is_some()
                {
                    known.push(turn);
                }
            }
            page.items = known;
        }
        Ok(page)
    }

    async fn sweep(&self, before: Timestamp) -> Result<u64> {
        if self.defect != Defect::SweptOutcomes {
            return self.store.sweep(before).await;
        }
        let old = self
            .store
            .unfinished(&JournalQuery::default().before(before))
            .await?;
        for turn in &old.items {
            self.store.clear(&turn.scope, &turn.key).await?;
        }
        Ok(old.items.len() as u64)
    }
}
