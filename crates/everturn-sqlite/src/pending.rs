//! Finding pending background runs.

use everturn_agent::store::{PendingCursor, PendingPage, PendingQuery, PendingRun, Scope};
use everturn_sql::{clamped_nanos, pending_page};
use rusqlite::{ToSql, params_from_iter};

use crate::fault::Outcome;
use crate::read::Reading;
use crate::row::{COLUMNS, Stored};

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
        let after = query.after.as_ref().map(place);
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
fn place(cursor: &PendingCursor) -> (i64, &str, &str) {
    (
        clamped_nanos(cursor.created_at),
        cursor.snapshot_id.as_str(),
        cursor.scope.as_str(),
    )
}
