//! A store in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use everturn_core::{Error, Result};
use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::watch;

use super::{
    Cursor, Deletion, Detail, Mutation, Order, Page, Precondition, Scope, SessionQuery, SessionStore, SessionSummary,
    SnapshotQuery, StatusStream, admit, tip_moved,
};
use crate::{SessionId, Snapshot, SnapshotId, SnapshotStatus};

/// Keeps snapshots in this process: for tests, tools and conversations that need not outlive it.
///
/// Rows share what they have in common: a snapshot of a long conversation costs what its turn added. Cloning gives
/// another handle to the same store. Nothing survives the process.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<HashMap<Scope, Rows>>>);

#[derive(Default)]
struct Rows {
    by_id: HashMap<SnapshotId, Row>,
    by_session: HashMap<SessionId, BTreeSet<Position>>,
    /// Every session by its tip, so that listing them sorts nothing.
    by_tip: BTreeMap<Position, SessionId>,
    by_parent: HashMap<SnapshotId, BTreeSet<Position>>,
}

type Position = (Timestamp, SnapshotId);

struct Row {
    snapshot: Snapshot,
    status: watch::Sender<SnapshotStatus>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<Scope, Rows>> {
        // Rows are replaced whole, so a panic elsewhere cannot have left half of one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    fn tip(&self, session: &SessionId) -> Option<&Position> {
        self.by_session.get(session)?.last()
    }

    fn read(&self, id: &SnapshotId, detail: Detail) -> Option<Snapshot> {
        let mut snapshot = self.by_id.get(id)?.snapshot.clone();
        if detail == Detail::Metadata {
            snapshot.state = None;
        }
        Some(snapshot)
    }

    fn check(&self, row: &Snapshot, precondition: &Precondition) -> Result<()> {
        let (Precondition::Tip(expected), Some(session)) = (precondition, &row.session_id) else {
            return Ok(());
        };
        let found = self.tip(session).map(|(_, id)| id);
        if found == expected.as_ref() { Ok(()) } else { Err(tip_moved(session, expected.as_ref(), found)) }
    }

    fn write(&mut self, row: &Snapshot) {
        let status = match self.remove(&row.snapshot_id) {
            Some(old) => {
                old.status.send_if_modified(|status| std::mem::replace(status, row.status) != row.status);
                old.status
            }
            None => watch::Sender::new(row.status),
        };
        let position = (row.created_at, row.snapshot_id.clone());
        if let Some(session) = &row.session_id {
            self.change_session(session, |order| order.insert(position.clone()));
        }
        if let Some(parent) = &row.parent_id {
            self.by_parent.entry(parent.clone()).or_default().insert(position);
        }
        self.by_id.insert(row.snapshot_id.clone(), Row { snapshot: row.clone(), status });
    }

    fn remove(&mut self, id: &SnapshotId) -> Option<Row> {
        let row = self.by_id.remove(id)?;
        let position = (row.snapshot.created_at, id.clone());
        if let Some(session) = &row.snapshot.session_id {
            self.change_session(session, |order| order.remove(&position));
        }
        if let Some(parent) = &row.snapshot.parent_id
            && let Some(siblings) = self.by_parent.get_mut(parent)
        {
            siblings.remove(&position);
            if siblings.is_empty() {
                self.by_parent.remove(parent);
            }
        }
        Some(row)
    }

    /// Changes which rows a session has and keeps the order of sessions in step.
    fn change_session(&mut self, session: &SessionId, change: impl FnOnce(&mut BTreeSet<Position>) -> bool) {
        let order = self.by_session.entry(session.clone()).or_default();
        let before = order.last().cloned();
        change(order);
        let after = order.last().cloned();
        if after.is_none() {
            self.by_session.remove(session);
        }
        if before != after {
            before.map(|tip| self.by_tip.remove(&tip));
            after.map(|tip| self.by_tip.insert(tip, session.clone()));
        }
    }
}

/// One page of positions, beyond the cursor, that `take` keeps.
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
    let next = kept.next().and_then(|_| page.last()).map(|((created_at, snapshot_id), _)| Cursor {
        created_at: *created_at,
        snapshot_id: snapshot_id.clone(),
    });
    Page { items: page.into_iter().map(|(_, item)| item).collect(), next }
}

/// The positions that come after the cursor in the given order.
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
        Ok(self.rows().get(scope).and_then(|rows| rows.read(id, detail)))
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        if session.as_str().is_empty() {
            return Err(Error::invalid_argument("a session id is needed to find its latest snapshot"));
        }
        Ok(self.rows().get(scope).and_then(|rows| rows.read(&rows.tip(session)?.1, detail)))
    }

    async fn save(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
    ) -> Result<Option<Snapshot>> {
        let id = id.cloned().and_then(SnapshotId::given).unwrap_or_else(SnapshotId::fresh);
        let mut scopes = self.rows();
        let rows = scopes.entry(scope.clone()).or_default();
        let existing = rows.by_id.get(&id).map(|row| &row.snapshot);
        let Some(row) = mutation(existing)? else {
            return Ok(None);
        };
        let row = admit(&id, existing, row)?;
        if existing.is_none() {
            rows.check(&row, &precondition)?;
        }
        rows.write(&row);
        Ok(Some(row))
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let scopes = self.rows();
        let order = scopes.get(scope).and_then(|rows| Some((rows, rows.by_session.get(&query.session)?)));
        let Some((rows, positions)) = order else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let positions = positions.range(beyond(query.after.as_ref(), query.order));
        Ok(page(positions, query.order, query.page_size(), |(_, id)| {
            rows.read(id, query.detail).filter(|row| query.orphaned || !row.orphaned)
        }))
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let scopes = self.rows();
        let Some(rows) = scopes.get(scope) else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let tips = rows.by_tip.range(beyond(query.after.as_ref(), query.order)).map(|(position, _)| position);
        Ok(page(tips, query.order, query.page_size(), |position| {
            let session_id = rows.by_tip.get(position)?.clone();
            Some(SessionSummary { session_id, latest: rows.read(&position.1, Detail::Metadata)? })
        }))
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        let scopes = self.rows();
        let rows = scopes.get(scope).and_then(|rows| Some((rows, rows.by_parent.get(id)?)));
        let children = rows.map(|(rows, positions)| {
            positions.iter().filter_map(|(_, id)| rows.read(id, Detail::Metadata)).collect()
        });
        Ok(children.unwrap_or_default())
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        let mut scopes = self.rows();
        let Some(rows) = scopes.get_mut(scope) else {
            return Ok(0);
        };
        let ids: Vec<SnapshotId> = match deletion {
            Deletion::Snapshots(ids) => ids.clone(),
            Deletion::Session(session) => {
                rows.by_session.get(session).into_iter().flatten().map(|(_, id)| id.clone()).collect()
            }
        };
        Ok(ids.iter().filter_map(|id| rows.remove(id)).count() as u64)
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        let scopes = self.rows();
        let Some(row) = scopes.get(scope).and_then(|rows| rows.by_id.get(id)) else {
            return Some(futures::stream::empty().boxed());
        };
        let receiver = row.status.subscribe();
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
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: usize = self.rows().values().map(|rows| rows.by_id.len()).sum();
        f.debug_struct("MemoryStore").field("rows", &rows).finish()
    }
}
