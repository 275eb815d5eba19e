//! Listings: the snapshots of a session and the sessions of a tenant, page by page.

use everturn_agent::Snapshot;
use everturn_agent::store::{Cursor, Order, Page, Scope, SessionQuery, SessionSummary, SnapshotQuery};
use everturn_sql::{clamped_nanos, page, sql_order, summary};
use rusqlite::{ToSql, params_from_iter};

use crate::fault::Outcome;
use crate::read::Reading;
use crate::row::COLUMNS;

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
    /// Returns all tenants that have rows, journals or accounts.
    pub(crate) fn tenants(&mut self) -> Outcome<Vec<Scope>> {
        let sql = "SELECT known.name, scope.tenant FROM (SELECT name FROM scope UNION SELECT scope FROM journal \
                   UNION SELECT scope FROM ledger) AS known LEFT JOIN scope ON scope.name = known.name";
        let mut statement = self.db.prepare_cached(sql)?;
        let tenants = statement.query_map([], |row| {
            let scope = Scope::new(row.get::<_, String>(0)?);
            Ok(match row.get::<_, Option<String>>(1)? {
                Some(tenant) => scope.with_tenant(tenant),
                None => scope,
            })
        })?;
        Ok(tenants.collect::<rusqlite::Result<_>>()?)
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
