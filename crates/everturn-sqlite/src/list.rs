//! Listings: the snapshots of a session and the sessions of a tenant, page by page.

use everturn_agent::Snapshot;
use everturn_agent::store::{
    Cursor, Order, Page, PendingCursor, PendingPage, PendingQuery, PendingRun, Scope, SessionQuery,
    SessionSummary, SnapshotQuery,
};
use everturn_sql::{clamped_nanos, page, pending_page, sql_order, summary};
use rusqlite::{ToSql, params_from_iter};

use crate::fault::Outcome;
use crate::read::Reading;
use crate::row::{COLUMNS, Stored};
use crate::statement::Statements;

/// Selects a page of a session's snapshots: the order comes from the index alone, and rows are read by key.
pub(crate) fn snapshots(order: Order, orphaned: bool, after: bool) -> String {
    let (direction, beyond) = sql_order(order);
    let beyond = if after {
        format!("AND (snapshot.created_at, snapshot.id) {beyond} (?4, ?5)")
    } else {
        String::new()
    };
    let kept = if orphaned { "" } else { "AND snapshot.orphaned = 0" };
    format!(
        "SELECT {COLUMNS} FROM session JOIN snapshot ON snapshot.session = session.key \
         WHERE session.scope = (SELECT key FROM scope WHERE name = ?1) AND session.name = ?2 {kept} {beyond} \
         ORDER BY snapshot.created_at {direction}, snapshot.id {direction} LIMIT ?3"
    )
}

/// Selects a page of a tenant's sessions, in the order of their tips.
pub(crate) fn sessions(order: Order, after: bool) -> String {
    let (direction, beyond) = sql_order(order);
    let beyond = if after {
        format!("AND (tip.created_at, tip.id) {beyond} (?3, ?4)")
    } else {
        String::new()
    };
    format!(
        "SELECT {COLUMNS} FROM tip CROSS JOIN snapshot ON snapshot.scope = tip.scope AND snapshot.id = tip.id \
         CROSS JOIN session ON session.key = tip.session \
         WHERE tip.scope = (SELECT key FROM scope WHERE name = ?1) {beyond} \
         ORDER BY tip.created_at {direction}, tip.id {direction} LIMIT ?2"
    )
}

/// Returns a cursor's place as parameters. A time outside the range of stored times sorts before or after all
/// rows.
fn place(cursor: &Cursor) -> (i64, String) {
    (
        clamped_nanos(cursor.created_at),
        cursor.snapshot_id.as_str().to_owned(),
    )
}

impl Reading<'_> {
    /// Returns all tenants that have rows, journals or usage.
    pub(crate) fn tenants(&mut self) -> Outcome<Vec<Scope>> {
        let sql = "SELECT known.name, scope.tenant FROM (SELECT name FROM scope UNION SELECT scope FROM journal \
                   UNION SELECT scope FROM ledger) AS known LEFT JOIN scope ON scope.name = known.name";
        self.db.all(sql, [], |row| {
            let scope = Scope::new(row.get::<_, String>(0)?);
            Ok(match row.get::<_, Option<String>>(1)? {
                Some(tenant) => scope.with_tenant(tenant),
                None => scope,
            })
        })
    }

    pub(crate) fn list(&mut self, scope: &str, query: &SnapshotQuery) -> Outcome<Page<Snapshot>> {
        let sql = snapshots(query.order, query.orphaned, query.after.is_some());
        let (session, limit) = (query.session.as_str(), query.page_size() + 1);
        let after = query.after.as_ref().map(place);
        let mut params: Vec<&dyn ToSql> = vec![&scope, &session, &limit];
        if let Some((created_at, id)) = &after {
            params.extend([created_at as &dyn ToSql, id]);
        }
        let rows = self.rows(&sql, params_from_iter(params))?;
        let mut items = Vec::with_capacity(rows.len());
        for row in rows {
            items.push(self.snapshot(row, query.detail)?);
        }
        Ok(page(items, query.page_size(), |row| row))
    }

    pub(crate) fn sessions(&mut self, scope: &str, query: &SessionQuery) -> Outcome<Page<SessionSummary>> {
        let sql = sessions(query.order, query.after.is_some());
        let limit = query.page_size() + 1;
        let after = query.after.as_ref().map(place);
        let mut params: Vec<&dyn ToSql> = vec![&scope, &limit];
        if let Some((created_at, id)) = &after {
            params.extend([created_at as &dyn ToSql, id]);
        }
        let rows = self.rows(&sql, params_from_iter(params))?;
        let items = rows.into_iter().map(|row| summary(row.snapshot));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        Ok(page(items, query.page_size(), |summary| &summary.latest))
    }
}

/// Selects a page of pending rows: a range of an index that holds only them.
pub(crate) fn pending(silent: bool, after: bool) -> String {
    let silent = if silent {
        "AND snapshot.heartbeat_at < ?2"
    } else {
        "AND ?2 IS NULL"
    };
    let beyond = if after {
        // If the cursor's tenant was deleted, all runs at its place may be listed again.
        "AND (snapshot.created_at, snapshot.id, snapshot.scope) \
         > (?3, ?4, coalesce((SELECT key FROM scope WHERE name = ?5), -1))"
    } else {
        ""
    };
    format!(
        "SELECT {COLUMNS}, scope.name FROM snapshot INDEXED BY snapshot_pending \
         CROSS JOIN session ON session.key = snapshot.session CROSS JOIN scope ON scope.key = snapshot.scope \
         WHERE snapshot.status = 'pending' {silent} {beyond} \
         ORDER BY snapshot.created_at, snapshot.id, snapshot.scope LIMIT ?1"
    )
}

/// The column of the tenant's name, after the columns of the row.
const SCOPE_NAME: usize = 24;

impl Reading<'_> {
    pub(crate) fn pending(&self, query: &PendingQuery) -> Outcome<PendingPage> {
        let sql = pending(query.silent_since.is_some(), query.after.is_some());
        // One more than the page, to know whether there is a next one.
        let limit = query.page_size() + 1;
        let silent_since = query.silent_since.map(clamped_nanos);
        let after = query.after.as_ref().map(pending_place);
        let mut params: Vec<&dyn ToSql> = vec![&limit, &silent_since];
        if let Some((created_at, id, scope)) = &after {
            params.extend([created_at as &dyn ToSql, id, scope]);
        }
        let mut statement = self.db.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(params))?;
        let mut items = Vec::new();
        while let Some(row) = rows.next()? {
            items.push(PendingRun {
                scope: Scope::new(row.get::<_, String>(SCOPE_NAME)?),
                snapshot: Stored::from_row(row)?.snapshot,
            });
        }
        Ok(pending_page(items, query))
    }
}

/// Returns a cursor's place as parameters of a statement.
fn pending_place(cursor: &PendingCursor) -> (i64, &str, &str) {
    (
        clamped_nanos(cursor.created_at),
        cursor.snapshot_id.as_str(),
        cursor.scope.as_str(),
    )
}
