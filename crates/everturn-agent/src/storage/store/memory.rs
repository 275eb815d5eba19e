//! The in-memory store.

mod locks;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque, btree_map, vec_deque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_ai::UsageTotal;
use everturn_core::{Error, Result};
use futures::StreamExt;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use self::locks::Locks;
use super::{
    Cursor, Deletion, Detail, Expense, Journal, JournalGuard, JournalKey, JournalPage, JournalQuery,
    JournalRecord, LockGrant, LockPlace, LockRequest, Mutation, Order, Page, PendingPage, PendingQuery,
    PendingRun, Precondition, Recalled, ResumeAt, Scope, SessionQuery, SessionStore, SessionSummary,
    SnapshotQuery, StatusStream, TurnAccount, TurnExpenses, TurnLocks, UnfinishedTurn, UsageLedger, admit,
    has_unknown_outcome, id_to_save, lock_lost, page_of_tenants, record_taken,
};
use crate::{Clock, SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// Keeps snapshots in this process: for tests, tools and conversations that need not outlive it.
///
/// Snapshots share what they have in common: a snapshot of a long conversation costs as much as its turn
/// added. Cloning is cheap, and clones share the content. Every call is one step under one lock, so all calls
/// are linearizable, including pages of lists. Nothing survives the process.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Content>);

#[derive(Default)]
struct Content {
    tenants: Mutex<HashMap<Scope, Tenant>>,
    /// Tells turns that wait for a lock that one may be free.
    freed: Notify,
}

/// The rows of one tenant.
#[derive(Default)]
struct Tenant {
    /// The readable name, if the scope is a hash of it.
    name: Option<String>,
    // Boxed because rows are large and a hash table keeps spare capacity.
    rows: HashMap<SnapshotId, Box<Snapshot>>,
    sessions: HashMap<SessionId, SessionRows>,
    /// Every session by its tip, so that listing them sorts nothing.
    tips: BTreeMap<Position, SessionId>,
    /// Every row with a parent, sorted after that parent.
    children: BTreeSet<(SnapshotId, Position)>,
    /// The rows of unfinished background runs.
    pending: BTreeSet<SnapshotId>,
    /// The rows that are watched, or were until recently.
    watched: HashMap<SnapshotId, watch::Sender<SnapshotStatus>>,
    /// The number of watched rows at which those without watchers are forgotten.
    sweep_at: usize,
    journals: BTreeMap<JournalKey, MemoryJournal>,
    /// The usage of the tenant.
    spent: UsageTotal,
    /// The usage of turns that no snapshot holds yet, each with the snapshot that it continues.
    accounts: BTreeMap<JournalKey, (Option<SnapshotId>, UsageTotal)>,
    locks: Locks,
}

/// The journal of one unfinished turn.
#[derive(Default)]
struct MemoryJournal {
    records: BTreeMap<u64, Value>,
    added_at: Timestamp,
}

impl MemoryJournal {
    fn records(&self) -> Vec<JournalRecord> {
        let record = |(sequence, body): (&u64, &Value)| JournalRecord {
            sequence: *sequence,
            body: body.clone(),
        };
        self.records.iter().map(record).collect()
    }
}

/// The rows of one session, in order.
#[derive(Default)]
struct SessionRows {
    all: Positions,
    /// The positions of rows that are not superseded.
    kept: Positions,
}

impl SessionRows {
    fn insert(&mut self, position: Position, orphaned: bool) {
        if !orphaned {
            self.kept.insert(position.clone());
        }
        self.all.insert(position);
    }

    fn remove(&mut self, position: &Position) {
        self.kept.remove(position);
        self.all.remove(position);
    }
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Scope, Tenant>> {
        self.0.tenants.lock()
    }

    fn save_now(
        &self,
        scope: &Scope,
        id: &SnapshotId,
        precondition: &Precondition,
        mutation: &Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        let mut scopes = self.tenants();
        let tenant = scopes.entry(scope.clone()).or_default();
        let existing = tenant.rows.get(id).map(AsRef::as_ref);
        // The mutation runs under the lock. It must be pure, so it cannot wait or come back to the store.
        let Some(row) = mutation.apply(existing)? else {
            return Ok(None);
        };
        let row = admit(id, existing, row)?;
        tenant.check(&row, precondition)?;
        tenant.write(&row);
        if tenant.name.is_none() {
            tenant.name = scope.tenant().map(str::to_owned);
        }
        if tenant.move_lock(&row, precondition) {
            self.0.freed.notify_waiters();
        }
        for key in journals {
            tenant.journals.remove(key);
            tenant.accounts.remove(key);
        }
        Ok(Some(row))
    }
}

impl Tenant {
    fn tip(&self, session: &SessionId) -> Option<&Position> {
        self.sessions.get(session)?.kept.last()
    }

    fn read(&self, id: &SnapshotId, detail: Detail) -> Option<Snapshot> {
        Some(detail.cut(Snapshot::clone(self.rows.get(id)?)))
    }

    fn check(&self, row: &Snapshot, precondition: &Precondition) -> Result<()> {
        let Some(session) = &row.session_id else {
            return Ok(());
        };
        self.check_lock(session, precondition)?;
        precondition.check(session, self.found(session, precondition, &row.snapshot_id))
    }

    fn check_lock(&self, session: &SessionId, precondition: &Precondition) -> Result<()> {
        match (precondition, precondition.lock_place()) {
            (Precondition::Held { turn, .. }, Some(place)) if !self.locks.is_held(session, &place, turn) => {
                Err(lock_lost(session, turn))
            }
            _ => Ok(()),
        }
    }

    /// Moves the lock under which a row was written along with its branch; returns whether it was released.
    fn move_lock(&mut self, row: &Snapshot, precondition: &Precondition) -> bool {
        let Precondition::Held { releases, .. } = precondition else {
            return false;
        };
        if let (Some(session), Some(from)) = (&row.session_id, precondition.lock_place()) {
            let counts = !row.orphaned && precondition.counts(&row.snapshot_id, row.status);
            let to = match &from {
                LockPlace::Branch(_) if counts => LockPlace::Branch(Some(row.snapshot_id.clone())),
                _ => from.clone(),
            };
            self.locks.moved(session, &from, &to, *releases);
        }
        *releases
    }

    /// The row that a precondition requires, where `written` is being written.
    fn found(
        &self,
        session: &SessionId,
        precondition: &Precondition,
        written: &SnapshotId,
    ) -> Option<&SnapshotId> {
        let counts = |row: &Snapshot| {
            !row.orphaned && row.snapshot_id != *written && precondition.counts(&row.snapshot_id, row.status)
        };
        match precondition.on_snapshots() {
            Precondition::None | Precondition::Held { .. } => None,
            Precondition::Tip(_) => self.tip(session).map(|(_, id)| id),
            Precondition::Unfollowed { snapshot: None, .. } => {
                let kept = self.sessions.get(session)?.kept.iter();
                kept.map(|(_, id)| id).find(|id| counts(&self.rows[*id]))
            }
            Precondition::Unfollowed {
                snapshot: Some(id), ..
            } => {
                let is_own = |row: &Snapshot| row.session_id.as_ref() == Some(session);
                let continued = self.rows.get(id).filter(|row| is_own(row) && !row.orphaned)?;
                let successor = self.children_of(id).find(|child| {
                    let child = &self.rows[*child];
                    is_own(child) && counts(child) && child.position() > continued.position()
                });
                Some(successor.unwrap_or(&continued.snapshot_id))
            }
        }
    }

    fn write(&mut self, row: &Snapshot) {
        // A rewrite may move the row in every index, so it is removed before it is inserted.
        self.unlink(&row.snapshot_id);
        let position = (row.created_at, row.snapshot_id.clone());
        if let Some(session) = &row.session_id {
            self.change_session(session, |rows| rows.insert(position.clone(), row.orphaned));
        }
        if let Some(parent) = &row.parent_id {
            self.children.insert((parent.clone(), position));
        }
        if row.status == SnapshotStatus::Pending {
            self.pending.insert(row.snapshot_id.clone());
        }
        if let Some(watched) = self.watched.get(&row.snapshot_id) {
            // Heartbeats rewrite the row and must not wake its watchers.
            watched.send_if_modified(|status| std::mem::replace(status, row.status) != row.status);
        }
        self.rows.insert(row.snapshot_id.clone(), Box::new(row.clone()));
    }

    fn remove(&mut self, id: &SnapshotId) -> bool {
        // Dropping the sender ends the streams of the row's watchers.
        self.watched.remove(id);
        self.unlink(id)
    }

    /// Removes a row from every table; returns whether it existed.
    fn unlink(&mut self, id: &SnapshotId) -> bool {
        let Some(row) = self.rows.remove(id) else {
            return false;
        };
        self.pending.remove(id);
        let position = (row.created_at, id.clone());
        if let Some(session) = &row.session_id {
            self.change_session(session, |rows| rows.remove(&position));
        }
        if let Some(parent) = row.parent_id {
            self.children.remove(&(parent, position));
        }
        true
    }

    /// Returns the children of a row, oldest first.
    fn children_of(&self, parent: &SnapshotId) -> impl Iterator<Item = &SnapshotId> {
        let first = (parent.clone(), (Timestamp::MIN, SnapshotId::from("")));
        let own = self
            .children
            .range(first..)
            .take_while(move |(of, _)| of == parent);
        own.map(|(_, (_, id))| id)
    }

    fn watch(&mut self, id: &SnapshotId) -> Option<watch::Receiver<SnapshotStatus>> {
        let status = self.rows.get(id)?.status;
        // Swept only when the number has doubled, so that each watcher costs the same on average.
        if self.watched.len() >= self.sweep_at {
            self.watched.retain(|_, watched| !watched.is_closed());
            self.sweep_at = self.watched.len() * 2 + 16;
        }
        Some(
            self.watched
                .entry(id.clone())
                .or_insert_with(|| watch::Sender::new(status))
                .subscribe(),
        )
    }

    /// Changes which rows a session has, and updates the order of sessions.
    fn change_session(&mut self, session: &SessionId, change: impl FnOnce(&mut SessionRows)) {
        let rows = self.sessions.entry(session.clone()).or_default();
        let before = rows.kept.last().cloned();
        change(rows);
        let after = rows.kept.last().cloned();
        if rows.all.is_empty() {
            self.sessions.remove(session);
        }
        if before != after {
            before.map(|tip| self.tips.remove(&tip));
            after.map(|tip| self.tips.insert(tip, session.clone()));
        }
    }
}

/// Returns one page of the positions after the cursor that `take` keeps.
fn page<'a, T>(
    positions: impl DoubleEndedIterator<Item = &'a Position>,
    order: Order,
    size: usize,
    take: impl Fn(&Position) -> Option<T>,
) -> Page<T> {
    let positions: Box<dyn Iterator<Item = &Position>> = match order {
        Order::Newest => Box::new(positions.rev()),
        Order::Oldest => Box::new(positions),
    };
    let mut kept = positions.filter_map(|position| Some((position, take(position)?)));
    let page: Vec<_> = kept.by_ref().take(size).collect();
    // One more item than the page is looked at, so that the last page has no cursor.
    let next = kept
        .next()
        .and_then(|_| page.last())
        .map(|((created_at, snapshot_id), _)| Cursor {
            created_at: *created_at,
            snapshot_id: snapshot_id.clone(),
        });
    Page {
        items: page.into_iter().map(|(_, item)| item).collect(),
        next,
    }
}

/// Returns the range of positions after the cursor in the given order.
fn beyond(after: Option<&Cursor>, order: Order) -> (Bound<Position>, Bound<Position>) {
    let Some(cursor) = after else {
        return (Bound::Unbounded, Bound::Unbounded);
    };
    let edge = Bound::Excluded((cursor.created_at, cursor.snapshot_id.clone()));
    match order {
        Order::Newest => (Bound::Unbounded, edge),
        Order::Oldest => (edge, Bound::Unbounded),
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        Ok(self
            .tenants()
            .get(scope)
            .and_then(|tenant| tenant.read(id, detail)))
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        if session.as_str().is_empty() {
            return Err(Error::invalid_argument(
                "a session id is needed to find its latest snapshot",
            ));
        }
        Ok(self
            .tenants()
            .get(scope)
            .and_then(|tenant| tenant.read(&tenant.tip(session)?.1, detail)))
    }

    async fn commit(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        self.save_now(scope, &id_to_save(id), &precondition, &mutation, journals)
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let scopes = self.tenants();
        let order = scopes
            .get(scope)
            .and_then(|tenant| Some((tenant, tenant.sessions.get(&query.session)?)));
        let Some((tenant, positions)) = order else {
            return Ok(Page {
                items: Vec::new(),
                next: None,
            });
        };
        let positions = positions.all.range(beyond(query.after.as_ref(), query.order));
        Ok(page(positions, query.order, query.page_size(), |(_, id)| {
            tenant
                .read(id, query.detail)
                .filter(|row| query.orphaned || !row.orphaned)
        }))
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let scopes = self.tenants();
        let Some(tenant) = scopes.get(scope) else {
            return Ok(Page {
                items: Vec::new(),
                next: None,
            });
        };
        let tips = tenant
            .tips
            .range(beyond(query.after.as_ref(), query.order))
            .map(|(position, _)| position);
        Ok(page(tips, query.order, query.page_size(), |position| {
            let session_id = tenant.tips.get(position)?.clone();
            Some(SessionSummary {
                session_id,
                latest: tenant.read(&position.1, Detail::Metadata)?,
            })
        }))
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        let scopes = self.tenants();
        let Some(tenant) = scopes.get(scope) else {
            return Ok(Vec::new());
        };
        Ok(tenant
            .children_of(id)
            .filter_map(|child| tenant.read(child, Detail::Metadata))
            .collect())
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        let mut scopes = self.tenants();
        let Some(tenant) = scopes.get_mut(scope) else {
            return Ok(0);
        };
        let ids: Vec<SnapshotId> = match deletion {
            Deletion::Snapshots(ids) => ids.clone(),
            Deletion::Tenant => {
                tenant.journals.clear();
                tenant.accounts.clear();
                tenant.spent = UsageTotal::default();
                tenant.rows.keys().cloned().collect()
            }
            Deletion::Session(session) => {
                tenant.journals.retain(|key, _| key.session() != session);
                tenant.accounts.retain(|key, _| key.session() != session);
                let rows = tenant.sessions.get(session).into_iter();
                rows.flat_map(|rows| rows.all.iter())
                    .map(|(_, id)| id.clone())
                    .collect()
            }
        };
        let deleted = ids.iter().filter(|id| tenant.remove(id)).count() as u64;
        if tenant.rows.is_empty() {
            tenant.name = None;
        }
        Ok(deleted)
    }

    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        let scopes = self.tenants();
        let known = scopes.iter().filter(|(_, tenant)| {
            let is_counted = !tenant.spent.is_zero() || !tenant.accounts.is_empty();
            !tenant.rows.is_empty() || !tenant.journals.is_empty() || is_counted
        });
        let named = |(scope, tenant): (&Scope, &Tenant)| match &tenant.name {
            Some(name) => scope.clone().with_tenant(name.as_str()),
            None => Scope::new(scope.as_str()),
        };
        Ok(page_of_tenants(known.map(named).collect(), after))
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        let scopes = self.tenants();
        let runs = scopes.iter().flat_map(|(scope, tenant)| {
            let rows = tenant.pending.iter().filter_map(|id| tenant.rows.get(id));
            rows.filter(|row| query.wants(row)).map(|row| PendingRun {
                scope: scope.clone(),
                snapshot: Detail::Metadata.cut(Snapshot::clone(row)),
            })
        });
        Ok(Some(PendingPage::cut(query, runs)))
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        let Some(receiver) = self.tenants().get_mut(scope).and_then(|tenant| tenant.watch(id)) else {
            return Some(futures::stream::empty().boxed());
        };
        let statuses = futures::stream::unfold((receiver, true), |(mut receiver, first)| async move {
            if !first {
                receiver.changed().await.ok()?;
            }
            let status = *receiver.borrow_and_update();
            Some((status, (receiver, false)))
        });
        Some(statuses.boxed())
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
        Clock::system()
    }

    fn turn_locks(&self) -> Option<&dyn TurnLocks> {
        Some(self)
    }
}

#[async_trait]
impl UsageLedger for MemoryStore {
    async fn spend(&self, scope: &Scope, expense: &Expense) -> Result<UsageTotal> {
        let mut scopes = self.tenants();
        let tenant = scopes.entry(scope.clone()).or_default();
        let after = expense.tenant_after(tenant.spent)?;
        if let Some(session) = &expense.session {
            let held = tenant.accounts.get(&session.key).map(|(_, used)| *used);
            let after = session.after(held.unwrap_or_default())?;
            tenant.accounts.insert(session.key.clone(), (None, after));
        }
        if let Some(after) = after {
            tenant.spent = after;
        }
        if let Some((account, used)) = &expense.turn {
            let base = account.base().cloned();
            let (_, total) = tenant
                .accounts
                .entry(account.key().clone())
                .or_insert((base, UsageTotal::default()));
            *total += *used;
        }
        Ok(tenant.spent)
    }

    async fn of_session(&self, scope: &Scope, session: &SessionId) -> Result<Vec<TurnExpenses>> {
        let scopes = self.tenants();
        let accounts = scopes.get(scope).map(|tenant| &tenant.accounts);
        // Keys are ordered by their session first.
        let own = accounts.into_iter().flat_map(|accounts| {
            accounts
                .range(JournalKey::new(session.clone(), "")..)
                .take_while(|(key, _)| key.session() == session)
        });
        let entry = |(key, (base, used)): (&JournalKey, &(Option<SnapshotId>, UsageTotal))| {
            TurnExpenses::new(TurnAccount::new(key.clone(), base.clone()), *used)
        };
        Ok(own.map(entry).collect())
    }

    async fn close(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        if let Some(tenant) = self.tenants().get_mut(scope) {
            tenant.accounts.remove(key);
        }
        Ok(())
    }

    async fn of_tenant(&self, scope: &Scope) -> Result<UsageTotal> {
        Ok(self
            .tenants()
            .get(scope)
            .map(|tenant| tenant.spent)
            .unwrap_or_default())
    }
}

#[async_trait]
impl TurnLocks for MemoryStore {
    async fn take(&self, scope: &Scope, request: &LockRequest) -> Result<LockGrant> {
        let mut scopes = self.tenants();
        let tenant = scopes.entry(scope.clone()).or_default();
        let precondition = &request.precondition;
        let found = tenant.found(&request.session, precondition, &request.turn);
        precondition.check(&request.session, found)?;
        Ok(match precondition.lock_place() {
            Some(place) => tenant.locks.take(request, place),
            None => LockGrant::Held,
        })
    }

    async fn renew(
        &self,
        scope: &Scope,
        session: &SessionId,
        turn: &SnapshotId,
        lease: Duration,
    ) -> Result<bool> {
        let mut scopes = self.tenants();
        let tenant = scopes.get_mut(scope);
        Ok(tenant.is_some_and(|tenant| tenant.locks.renew(session, turn, lease)))
    }

    async fn release(&self, scope: &Scope, session: &SessionId, turn: &SnapshotId) -> Result<()> {
        if let Some(tenant) = self.tenants().get_mut(scope) {
            tenant.locks.release(session, turn);
        }
        self.0.freed.notify_waiters();
        Ok(())
    }

    async fn freed(&self, _scope: &Scope, _session: &SessionId, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.0.freed.notified()).await;
    }

    fn is_default(&self) -> bool {
        false
    }

    async fn recall(&self, _scope: &Scope, _at: &ResumeAt) -> Option<Recalled> {
        None
    }
}

#[async_trait]
impl Journal for MemoryStore {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()> {
        let mut scopes = self.tenants();
        let tenant = scopes.entry(scope.clone()).or_default();
        if let Some(guard) = guard {
            let reserved = tenant.rows.get(&guard.reserved).map(AsRef::as_ref);
            let found = tenant.found(key.session(), &guard.precondition, &guard.reserved);
            guard.check(key.session(), reserved, found)?;
            if reserved.is_none() {
                tenant.check_lock(key.session(), &guard.precondition)?;
            }
        }
        let journal = tenant.journals.entry(key.clone()).or_default();
        match journal.records.entry(record.sequence) {
            btree_map::Entry::Occupied(_) => Err(record_taken(key, record.sequence)),
            btree_map::Entry::Vacant(number) => {
                number.insert(record.body);
                journal.added_at = Timestamp::now();
                Ok(())
            }
        }
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        let scopes = self.tenants();
        let journal = scopes.get(scope).and_then(|tenant| tenant.journals.get(key));
        Ok(journal.map(MemoryJournal::records).unwrap_or_default())
    }

    fn is_known_empty(&self, scope: &Scope, _: &SessionId) -> bool {
        // The journals of all its sessions: a journal is dropped when its turn is committed, so there are
        // seldom any.
        let tenants = self.tenants();
        tenants.get(scope).is_none_or(|tenant| tenant.journals.is_empty())
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        if let Some(tenant) = self.tenants().get_mut(scope) {
            tenant.journals.remove(key);
        }
        Ok(())
    }

    async fn unfinished(&self, query: &JournalQuery) -> Result<JournalPage> {
        let scopes = self.tenants();
        let tenants: Vec<_> = match &query.scope {
            Some(scope) => scopes.get_key_value(scope).into_iter().collect(),
            None => scopes.iter().collect(),
        };
        // Keys are ordered by their session first.
        let first = JournalKey::new(query.session.clone().unwrap_or_else(|| "".into()), "");
        let turns = tenants.into_iter().flat_map(|(scope, tenant)| {
            let is_of_session =
                |key: &JournalKey| query.session.as_ref().is_none_or(|own| own == key.session());
            let journals = tenant.journals.range(first.clone()..);
            let journals = journals.take_while(move |(key, _)| is_of_session(key));
            let wanted = journals.filter(move |(key, journal)| query.wants(scope, key, journal.added_at));
            wanted.map(|(key, journal)| UnfinishedTurn {
                scope: scope.clone(),
                key: key.clone(),
                added_at: journal.added_at,
                records: journal.records(),
            })
        });
        Ok(query.page(turns))
    }

    async fn sweep(&self, before: Timestamp) -> Result<u64> {
        let mut swept = 0;
        for tenant in self.tenants().values_mut() {
            let all = tenant.journals.len();
            tenant.journals.retain(|key, journal| {
                key.is_kept() || journal.added_at >= before || has_unknown_outcome(&journal.records())
            });
            swept += all - tenant.journals.len();
        }
        Ok(swept as u64)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenants = self.tenants();
        let rows: usize = tenants.values().map(|tenant| tenant.rows.len()).sum();
        let journals = || tenants.values().flat_map(|tenant| tenant.journals.keys());
        let (kept, unfinished): (Vec<_>, Vec<_>) = journals().partition(|key| key.is_kept());
        f.debug_struct("MemoryStore")
            .field("rows", &rows)
            .field("journals", &unfinished.len())
            .field("kept", &kept.len())
            .finish()
    }
}

pub(super) type Position = (Timestamp, SnapshotId);

/// Positions in order. They are added and removed at the ends, and most sessions have few: a tree would be
/// several times as large.
#[derive(Default)]
pub(super) struct Positions(VecDeque<Position>);

impl Positions {
    pub(super) fn insert(&mut self, position: Position) {
        if let Err(index) = self.0.binary_search(&position) {
            // Many sessions have one row, and no room for more is made for it.
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(index, position);
        }
    }

    pub(super) fn remove(&mut self, position: &Position) {
        if let Ok(index) = self.0.binary_search(position) {
            self.0.remove(index);
        }
    }

    pub(super) fn last(&self) -> Option<&Position> {
        self.0.back()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> vec_deque::Iter<'_, Position> {
        self.0.iter()
    }

    pub(super) fn range(
        &self,
        (from, to): (Bound<Position>, Bound<Position>),
    ) -> vec_deque::Iter<'_, Position> {
        let start = match from {
            Bound::Included(edge) => self.0.partition_point(|position| *position < edge),
            Bound::Excluded(edge) => self.0.partition_point(|position| *position <= edge),
            Bound::Unbounded => 0,
        };
        let end = match to {
            Bound::Included(edge) => self.0.partition_point(|position| *position <= edge),
            Bound::Excluded(edge) => self.0.partition_point(|position| *position < edge),
            Bound::Unbounded => self.0.len(),
        };
        self.0.range(start..end)
    }
}
