//! A small store that keeps each message once: the example of the guide "Bring your own store"
//! (`docs/stores.md`).
//!
//! Its tables are maps and its transaction is a mutex. Replace the maps by the tables of a database and the
//! mutex by a transaction, and it is durable. `main` certifies it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::store::{
    Cursor, Deletion, Detail, Journal, JournalGuard, JournalKey, JournalPage, JournalQuery, JournalRecord,
    Mutation, Order, Page, PendingPage, PendingQuery, PendingRun, Precondition, Scope, SessionQuery,
    SessionStore, SessionSummary, SnapshotQuery, StatusStream, TurnLocks, UnfinishedTurn, UsageLedger, admit,
    has_unknown_outcome, id_to_save, page_of_tenants, record_taken,
};
use everturn_agent::{Clock, SessionId, Snapshot, SnapshotId, SnapshotStatus};
use everturn_ai::{History, LineageId, Message};
use everturn_core::{Error, Result};
use everturn_testkit::certify::{certify, certify_growth};
use futures::StreamExt;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

/// The messages of a stored lineage, after those shared with the lineage it forked from.
#[derive(Default)]
struct StoredLineage {
    fork: Option<Position>,
    messages: Vec<String>,
}

impl StoredLineage {
    /// The number of messages before the lineage's own.
    fn base(&self) -> usize {
        self.fork.map_or(0, |fork| fork.len)
    }

    /// The length of the longest history in the lineage.
    fn end(&self) -> usize {
        self.base() + self.messages.len()
    }
}

/// A position in a stored lineage, which a snapshot refers to instead of holding a conversation.
#[derive(Clone, Copy)]
struct Position {
    lineage: u64,
    len: usize,
}

/// A snapshot as a row: columns for queries, and the rest as text.
struct Row {
    session: SessionId,
    created_at: Timestamp,
    parent: Option<SnapshotId>,
    status: SnapshotStatus,
    orphaned: bool,
    /// The snapshot without its state.
    metadata: String,
    /// The state without its messages.
    state: Option<String>,
    /// The messages; `None` if there are none.
    messages: Option<Position>,
}

#[derive(Default)]
struct StoredJournal {
    records: BTreeMap<u64, Value>,
    added_at: Timestamp,
}

impl StoredJournal {
    fn records(&self) -> Vec<JournalRecord> {
        let record = |(sequence, body): (&u64, &Value)| JournalRecord {
            sequence: *sequence,
            body: body.clone(),
        };
        self.records.iter().map(record).collect()
    }
}

type Key = (Scope, SnapshotId);

#[derive(Default)]
struct Tables {
    rows: BTreeMap<Key, Row>,
    lineages: BTreeMap<u64, StoredLineage>,
    next_lineage: u64,
    journals: BTreeMap<(Scope, JournalKey), StoredJournal>,

    // The fields below are a cache of this process and can be dropped at any time; messages are then read or
    // written again.
    /// The stored lineage and number of stored messages of each lineage of this process.
    places: HashMap<LineageId, Position>,
    /// The longest history of each stored lineage that was read or written.
    histories: HashMap<u64, History>,
    watched: HashMap<Key, watch::Sender<SnapshotStatus>>,
}

impl Tables {
    /// Stores the new messages of a history, and returns the history's position.
    fn put_history(&mut self, history: &History) -> Result<Option<Position>> {
        if history.is_empty() {
            return Ok(None);
        }
        let start = self.stored_start(history);
        let stored = start.map_or(0, |start| start.len);
        // Serialises first, so that a failed save has written nothing.
        let new: Vec<String> = history.since(stored).map(to_text).collect::<Result<_>>()?;
        let lineage = match start {
            // The stored lineage ends where this history continues, or contains all of it.
            Some(start) if new.is_empty() || self.lineages[&start.lineage].end() == stored => start.lineage,
            // The stored lineage continues differently, so this history is a fork.
            fork => {
                let lineage = self.next_lineage;
                self.next_lineage += 1;
                let messages = Vec::new();
                self.lineages.insert(lineage, StoredLineage { fork, messages });
                lineage
            }
        };
        self.lineages.entry(lineage).or_default().messages.extend(new);
        self.remember(lineage, history);
        let len = history.len();
        Ok(Some(Position { lineage, len }))
    }

    /// Finds the longest prefix of a history that is known to be stored: in the history's lineage, or in one
    /// that it forked from. Messages are not compared.
    fn stored_start(&self, history: &History) -> Option<Position> {
        let mut next = Some(history);
        while let Some(history) = next {
            if let Some(place) = self.places.get(&history.lineage().id()) {
                let len = place.len.min(history.len());
                return Some(Position { len, ..*place });
            }
            next = history.lineage().parent();
        }
        None
    }

    /// Records that a history, and every history it forked from, is in a stored lineage.
    fn remember(&mut self, lineage: u64, history: &History) {
        let mut next = Some(history);
        while let Some(history) = next {
            let len = history.len();
            let place = self
                .places
                .entry(history.lineage().id())
                .or_insert(Position { lineage, len });
            if place.len < len {
                *place = Position { lineage, len };
            }
            next = history.lineage().parent();
        }
        let longest = self.histories.entry(lineage).or_default();
        if longest.len() < history.len() {
            *longest = history.clone();
        }
    }

    /// Reads the history at a position. Histories of one lineage share their messages in memory, too.
    fn history(&mut self, at: Position) -> Result<History> {
        if let Some(known) = self
            .histories
            .get(&at.lineage)
            .filter(|known| known.len() >= at.len)
        {
            return Ok(known.truncate_to(at.len));
        }
        let (fork, base) = self
            .lineages
            .get(&at.lineage)
            .map(|stored| (stored.fork, stored.base()))
            .ok_or_else(|| Error::data_loss(format!("lineage {} is missing", at.lineage)))?;
        let mut history = match fork {
            Some(fork) => self.history(Position {
                len: fork.len.min(at.len),
                ..fork
            })?,
            None => History::new(),
        };
        for text in self.lineages[&at.lineage]
            .messages
            .iter()
            .take(at.len.saturating_sub(base))
        {
            history.push(from_text::<Message>(text)?);
        }
        self.remember(at.lineage, &history);
        Ok(history)
    }

    fn read(&mut self, key: &Key, detail: Detail) -> Result<Option<Snapshot>> {
        let Some(row) = self.rows.get(key) else {
            return Ok(None);
        };
        let mut snapshot: Snapshot = from_text(&row.metadata)?;
        if let (Detail::Whole, Some(state)) = (detail, &row.state) {
            snapshot.state = Some(from_text(state)?);
        }
        if let (Some(state), Some(at)) = (&mut snapshot.state, row.messages) {
            state.messages = self.history(at)?;
        }
        Ok(Some(snapshot))
    }

    fn write(&mut self, key: &Key, session: &SessionId, snapshot: &Snapshot) -> Result<()> {
        let mut metadata = snapshot.clone();
        let mut state = metadata.state.take();
        let history = state.as_mut().map(|state| std::mem::take(&mut state.messages));
        let (metadata, state) = (to_text(&metadata)?, state.as_ref().map(to_text).transpose()?);
        let row = Row {
            session: session.clone(),
            created_at: snapshot.created_at,
            parent: snapshot.parent_id.clone(),
            status: snapshot.status,
            orphaned: snapshot.orphaned,
            metadata,
            state,
            messages: self.put_history(&history.unwrap_or_default())?,
        };
        self.rows.insert(key.clone(), row);
        if let Some(watched) = self.watched.get(key) {
            watched.send_replace(snapshot.status);
        }
        Ok(())
    }

    /// The rows of a tenant. A database reads those of one session from an index on scope, session and
    /// creation time.
    fn rows_of(&self, scope: &Scope) -> impl Iterator<Item = (Cursor, &Row)> + Clone {
        let own = self.rows.iter().filter(move |((tenant, _), _)| tenant == scope);
        own.map(|((_, id), row)| (cursor(id, row), row))
    }

    /// The session's tip: the latest snapshot that is not superseded.
    fn tip(&self, scope: &Scope, session: &SessionId) -> Option<SnapshotId> {
        self.rows_of(scope)
            .filter(|(_, row)| row.session == *session && !row.orphaned)
            .map(|(cursor, _)| cursor)
            .max_by(|one, other| one.position().cmp(&other.position()))
            .map(|tip| tip.snapshot_id)
    }

    /// The snapshot that a precondition refers to, where `written` is being written. A database finds a
    /// snapshot's children by an index on scope and parent.
    fn found(
        &self,
        scope: &Scope,
        session: &SessionId,
        precondition: &Precondition,
        written: &SnapshotId,
    ) -> Option<SnapshotId> {
        let Precondition::Unfollowed { snapshot, .. } = precondition.on_snapshots() else {
            return self.tip(scope, session);
        };
        let mut kept = self
            .rows_of(scope)
            .filter(|(_, row)| row.session == *session && !row.orphaned);
        let continued = match snapshot {
            Some(id) => Some(kept.clone().find(|(place, _)| place.snapshot_id == *id)?.0),
            None => None,
        };
        let successor = kept.find(|(place, row)| {
            let follows = continued.as_ref().is_none_or(|continued| {
                row.parent.as_ref() == Some(&continued.snapshot_id) && place.position() > continued.position()
            });
            let id = &place.snapshot_id;
            follows && id != written && precondition.counts(id, row.status)
        });
        let found = successor.map(|(place, _)| place).or(continued);
        found.map(|place| place.snapshot_id)
    }

    /// Sorts the indices of rows, selects a page and reads it.
    fn page(
        &mut self,
        scope: &Scope,
        mut places: Vec<Cursor>,
        (order, after, size): (Order, Option<&Cursor>, usize),
        detail: Detail,
    ) -> Result<Page<Snapshot>> {
        places.sort_by(|one, other| one.position().cmp(&other.position()));
        if order == Order::Newest {
            places.reverse();
        }
        if let Some(after) = after {
            places.retain(|place| match order {
                Order::Newest => place.position() < after.position(),
                Order::Oldest => place.position() > after.position(),
            });
        }
        let more = places.len() > size;
        places.truncate(size);
        let next = places.last().filter(|_| more).cloned();
        let mut items = Vec::new();
        for place in places {
            items.extend(self.read(&(scope.clone(), place.snapshot_id), detail)?);
        }
        Ok(Page { items, next })
    }

    /// Deletes lineages without rows, and removes them from the cache.
    fn sweep_lineages(&mut self) {
        let mut used = HashSet::new();
        for row in self.rows.values() {
            let mut next = row.messages.map(|at| at.lineage);
            while let Some(lineage) = next.filter(|lineage| used.insert(*lineage)) {
                next = self.lineages[&lineage].fork.map(|fork| fork.lineage);
            }
        }
        self.lineages.retain(|lineage, _| used.contains(lineage));
        self.histories.retain(|lineage, _| used.contains(lineage));
        self.places.retain(|_, place| used.contains(&place.lineage));
    }
}

fn cursor(id: &SnapshotId, row: &Row) -> Cursor {
    Cursor {
        created_at: row.created_at,
        snapshot_id: id.clone(),
    }
}

/// Serialises a value, unless it is nested too deeply to be read again.
fn to_text<T: Serialize>(value: &T) -> Result<String> {
    let refused = |error| Error::invalid_argument(format!("the value cannot be stored: {error}"));
    let text = serde_json::to_string(value).map_err(refused)?;
    serde_json::from_str::<Value>(&text).map_err(refused)?;
    Ok(text)
}

fn from_text<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Error::data_loss(format!("a stored value is damaged: {error}")))
}

/// The store.
#[derive(Clone, Default)]
struct TableStore(Arc<Mutex<Tables>>);

impl TableStore {
    /// Begins a transaction, which ends when the guard is dropped.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock()
    }

    /// The number of stored bytes.
    fn bytes(&self) -> u64 {
        let tables = self.tables();
        let rows = tables.rows.values();
        let rows: usize = rows
            .map(|row| row.metadata.len() + row.state.as_ref().map_or(0, String::len))
            .sum();
        let messages = tables.lineages.values().flat_map(|stored| &stored.messages);
        (rows + messages.map(String::len).sum::<usize>()) as u64
    }
}

#[async_trait]
impl SessionStore for TableStore {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        self.tables().read(&(scope.clone(), id.clone()), detail)
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        if session.as_str().is_empty() {
            return Err(Error::invalid_argument("the session id is empty; name a session"));
        }
        let mut tables = self.tables();
        match tables.tip(scope, session) {
            Some(tip) => tables.read(&(scope.clone(), tip), detail),
            None => Ok(None),
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
        let key = (scope.clone(), id_to_save(id));
        let mut tables = self.tables();
        let existing = tables.read(&key, Detail::Whole)?;
        let Some(snapshot) = mutation.apply(existing.as_ref())? else {
            return Ok(None);
        };
        let snapshot = admit(&key.1, existing.as_ref(), snapshot)?;
        if let Some(session) = &snapshot.session_id {
            let found = tables.found(scope, session, &precondition, &key.1);
            precondition.check(session, found.as_ref())?;
            tables.write(&key, session, &snapshot)?;
        }
        for journal in journals {
            tables.journals.remove(&(scope.clone(), journal.clone()));
        }
        Ok(Some(snapshot))
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let mut tables = self.tables();
        let is_wanted = |row: &Row| row.session == query.session && (query.orphaned || !row.orphaned);
        let places = tables
            .rows_of(scope)
            .filter(|(_, row)| is_wanted(row))
            .map(|(place, _)| place)
            .collect();
        let cut = (query.order, query.after.as_ref(), query.page_size());
        tables.page(scope, places, cut, query.detail)
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let mut tables = self.tables();
        let sessions: HashSet<SessionId> = tables
            .rows_of(scope)
            .map(|(_, row)| row.session.clone())
            .collect();
        let tips = sessions.iter().filter_map(|session| tables.tip(scope, session));
        let tips: HashSet<SnapshotId> = tips.collect();
        let places = tables.rows_of(scope).map(|(place, _)| place);
        let places = places.filter(|place| tips.contains(&place.snapshot_id)).collect();
        let cut = (query.order, query.after.as_ref(), query.page_size());
        let Page { items, next } = tables.page(scope, places, cut, Detail::Metadata)?;
        let summary = |latest: Snapshot| {
            let session_id = latest.session_id.clone()?;
            Some(SessionSummary { session_id, latest })
        };
        let items = items.into_iter().filter_map(summary).collect();
        Ok(Page { items, next })
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        let mut tables = self.tables();
        let is_child = |row: &Row| row.parent.as_ref() == Some(id);
        let places = tables
            .rows_of(scope)
            .filter(|(_, row)| is_child(row))
            .map(|(place, _)| place)
            .collect();
        let page = tables.page(scope, places, (Order::Oldest, None, usize::MAX), Detail::Metadata)?;
        Ok(page.items)
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        let mut tables = self.tables();
        let is_meant = |(tenant, id): &Key, row: &Row| {
            tenant == scope
                && match deletion {
                    Deletion::Snapshots(ids) => ids.contains(id),
                    Deletion::Session(session) => row.session == *session,
                    Deletion::Tenant => true,
                }
        };
        let meant = tables.rows.extract_if(.., |key, row| is_meant(key, row));
        let deleted: Vec<Key> = meant.map(|(key, _)| key).collect();
        for key in &deleted {
            // Ends the streams of watchers.
            tables.watched.remove(key);
        }
        let is_dropped = |key: &JournalKey| match deletion {
            Deletion::Snapshots(_) => false,
            Deletion::Session(session) => key.session() == session,
            Deletion::Tenant => true,
        };
        tables
            .journals
            .retain(|(tenant, key), _| tenant != scope || !is_dropped(key));
        tables.sweep_lineages();
        Ok(deleted.len() as u64)
    }

    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        let tables = self.tables();
        let known = tables.rows.keys().map(|(tenant, _)| tenant.clone()).collect();
        Ok(page_of_tenants(known, after))
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        let mut tables = self.tables();
        let is_pending = |row: &Row| row.status == SnapshotStatus::Pending;
        let keys = tables
            .rows
            .iter()
            .filter(|(_, row)| is_pending(row))
            .map(|(key, _)| key.clone());
        let keys: Vec<Key> = keys.collect();
        let mut runs = Vec::new();
        for key in keys {
            let run = tables.read(&key, Detail::Metadata)?;
            runs.extend(run.map(|snapshot| PendingRun {
                scope: key.0,
                snapshot,
            }));
        }
        Ok(Some(PendingPage::cut(query, runs)))
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn UsageLedger> {
        // Limits then count the usage in snapshots.
        None
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn turn_locks(&self) -> Option<&dyn TurnLocks> {
        None
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        let mut tables = self.tables();
        let key = (scope.clone(), id.clone());
        let Some(status) = tables.rows.get(&key).map(|row| row.status) else {
            return Some(futures::stream::empty().boxed());
        };
        let watched = tables
            .watched
            .entry(key)
            .or_insert_with(|| watch::Sender::new(status));
        let mut receiver = watched.subscribe();
        // The current status comes first, even if other watchers have received it.
        receiver.mark_changed();
        let statuses = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.changed().await.ok()?;
            let status = *receiver.borrow_and_update();
            Some((status, receiver))
        });
        Some(statuses.boxed())
    }

    fn can_watch(&self) -> bool {
        true
    }
}

#[async_trait]
impl Journal for TableStore {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()> {
        let mut tables = self.tables();
        if let Some(guard) = guard {
            let reserved = tables.read(&(scope.clone(), guard.reserved.clone()), Detail::Metadata)?;
            let found = tables.found(scope, key.session(), &guard.precondition, &guard.reserved);
            guard.check(key.session(), reserved.as_ref(), found.as_ref())?;
        }
        let journal = tables.journals.entry((scope.clone(), key.clone())).or_default();
        if journal.records.contains_key(&record.sequence) {
            return Err(record_taken(key, record.sequence));
        }
        journal.records.insert(record.sequence, record.body);
        journal.added_at = Timestamp::now();
        Ok(())
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        let tables = self.tables();
        let journal = tables.journals.get(&(scope.clone(), key.clone()));
        Ok(journal.map(StoredJournal::records).unwrap_or_default())
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        self.tables().journals.remove(&(scope.clone(), key.clone()));
        Ok(())
    }

    async fn unfinished(&self, query: &JournalQuery) -> Result<JournalPage> {
        let tables = self.tables();
        let wanted = tables
            .journals
            .iter()
            .filter(|((scope, key), journal)| query.wants(scope, key, journal.added_at));
        Ok(query.page(wanted.map(|((scope, key), journal)| UnfinishedTurn {
            scope: scope.clone(),
            key: key.clone(),
            added_at: journal.added_at,
            records: journal.records(),
        })))
    }

    async fn sweep(&self, before: Timestamp) -> Result<u64> {
        let mut tables = self.tables();
        let old = tables.journals.extract_if(.., |(_, key), journal| {
            !key.is_kept() && journal.added_at < before && !has_unknown_outcome(&journal.records())
        });
        Ok(old.count() as u64)
    }
}

impl fmt::Debug for TableStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableStore")
    }
}

#[tokio::main]
async fn main() {
    let certificate = certify(|| async { Arc::new(TableStore::default()) as Arc<dyn SessionStore> }).await;
    print!("{certificate}");
    certificate.assert_kept();

    let store = TableStore::default();
    let certificate = certify_growth(Arc::new(store.clone()), async || store.bytes()).await;
    print!("{certificate}");
    certificate.assert_kept();
}
