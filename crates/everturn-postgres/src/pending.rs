//! Finding pending background runs.

use everturn_agent::store::{PendingPage, PendingQuery, PendingRun, Scope};
use everturn_sql::{clamped_nanos, pending_page};
use tokio_postgres::types::Type;

use crate::connection::{Statement, count};
use crate::fault::Outcome;
use crate::list::limit;
use crate::read::Reading;
use crate::row::{COLUMNS, SCOPE, Stored, text};

/// Selects a page of pending rows: a range of an index that holds only them.
///
/// Workers query runs without a heartbeat to take them over. The query skips rows that are being written, so
/// that many workers can query concurrently without waiting for each other.
pub(crate) fn pending(query: &PendingQuery) -> Statement<'static> {
    let mut statement = Statement::new("").with(limit(query.page_size()), Type::INT8);
    let (silent, lock) = match query.silent_since {
        Some(moment) => {
            let moment = statement.bind(clamped_nanos(moment), Type::INT8);
            (
                format!("AND s.heartbeat_at < {moment}"),
                "FOR SHARE OF s SKIP LOCKED",
            )
        }
        None => (String::new(), ""),
    };
    let beyond = match &query.after {
        Some(cursor) => {
            let at = statement.bind(clamped_nanos(cursor.created_at), Type::INT8);
            let id = statement.bind(cursor.snapshot_id.as_str().as_bytes().to_vec(), Type::BYTEA);
            let scope = statement.bind(cursor.scope.as_str().as_bytes().to_vec(), Type::BYTEA);
            format!("AND (s.created_at, s.id, s.scope) > ({at}, {id}, {scope})")
        }
        None => String::new(),
    };
    statement.sql = format!(
        "SELECT {COLUMNS} FROM @snapshot s JOIN @session n ON n.tenant = s.tenant AND n.key = s.session \
         WHERE s.status = 'pending' {silent} {beyond} ORDER BY s.created_at, s.id, s.scope LIMIT $1 {lock}"
    );
    statement
}

impl Reading<'_> {
    pub(crate) async fn pending(&self, query: &PendingQuery) -> Outcome<PendingPage> {
        let rows = self.rows(&pending(query)).await?;
        let mut items = Vec::with_capacity(rows.len());
        for row in &rows {
            items.push(PendingRun {
                scope: Scope::new(text(row, SCOPE)?),
                snapshot: Stored::from_row(row)?.snapshot,
            });
        }
        let page = pending_page(items, query);
        if query.silent_since.is_some() {
            for _ in &page.items {
                count(&self.store.db.counters.lapsed_leases);
            }
        }
        Ok(page)
    }
}
