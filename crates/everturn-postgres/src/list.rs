//! Listings: the snapshots of a session and the sessions of a tenant, page by page.

use everturn_agent::Snapshot;
use everturn_agent::store::{
    Cursor, Page, PendingPage, PendingQuery, PendingRun, Scope, SessionQuery, SessionSummary, SnapshotQuery,
};
use everturn_sql::{clamped_nanos, page, pending_page, sql_order, summary};

use crate::connection::{Patience, count};
use crate::fault::{Fault, Outcome};
use crate::position::SessionKey;
use crate::read::Reading;
use crate::row::{COLUMNS, SCOPE, Stored, text};
use crate::statement::Statement;

/// Selects a page of a session's snapshots: a range of an index.
pub(crate) fn snapshots(scope: &Scope, query: &SnapshotQuery) -> Statement<'static> {
    let (direction, beyond) = sql_order(query.order);
    let key = SessionKey::of(scope, query.session.as_str());
    let mut statement = Statement::new("").with((key, limit(query.page_size())));
    let beyond = after(&mut statement, query.after.as_ref(), "s.created_at, s.id", beyond);
    let kept = if query.orphaned { "" } else { "AND NOT s.orphaned" };
    statement.sql = format!(
        "SELECT {COLUMNS} FROM @session n JOIN @snapshot s ON s.tenant = $1 AND s.session = $2 \
         WHERE n.tenant = $1 AND n.key = $2 {kept} {beyond} \
         ORDER BY s.created_at {direction}, s.id {direction} LIMIT $3"
    );
    statement
}

/// Selects a page of a tenant's sessions, in the order of their tips.
pub(crate) fn sessions(scope: &Scope, query: &SessionQuery) -> Statement<'static> {
    let (direction, beyond) = sql_order(query.order);
    let mut statement = Statement::new("").with((scope, limit(query.page_size())));
    let beyond = after(&mut statement, query.after.as_ref(), "n.tip_at, n.tip", beyond);
    statement.sql = format!(
        "SELECT {COLUMNS} FROM @session n JOIN @snapshot s ON s.tenant = n.tenant AND s.scope = n.scope AND s.id = n.tip \
         WHERE n.tenant = $1 AND n.scope = $2 AND n.tip IS NOT NULL {beyond} \
         ORDER BY n.tip_at {direction}, n.tip {direction} LIMIT $3"
    );
    statement
}

/// Returns the limit of a query for a page: one row more, which shows whether there is another page.
pub(crate) fn limit(page_size: usize) -> i64 {
    i64::try_from(page_size).map_or(i64::MAX, |size| size.saturating_add(1))
}

fn after(statement: &mut Statement<'_>, cursor: Option<&Cursor>, columns: &str, beyond: &str) -> String {
    let Some(cursor) = cursor else {
        return String::new();
    };
    let at = statement.bind(clamped_nanos(cursor.created_at));
    let id = statement.bind(cursor.snapshot_id.as_str().as_bytes().to_vec());
    format!("AND ({columns}) {beyond} ({at}, {id})")
}

impl Reading<'_> {
    pub(crate) async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Outcome<Page<Snapshot>> {
        let statement = snapshots(scope, query);
        let mut patience = Patience::new(self.store.db.patience);
        let mut attempts = 0;
        loop {
            match self.list_once(&statement, query).await {
                // A row may have been deleted after it was listed and before its state was read.
                Err(Fault::Damaged(_)) if attempts < 3 && patience.wait().await => attempts += 1,
                outcome => return outcome,
            }
        }
    }

    async fn list_once(&self, statement: &Statement<'_>, query: &SnapshotQuery) -> Outcome<Page<Snapshot>> {
        let rows = self.rows(statement).await?;
        let mut items = Vec::with_capacity(rows.len());
        for row in &rows {
            items.push(self.snapshot(Stored::from_row(row)?, query.detail).await?);
        }
        Ok(page(items, query.page_size(), |row| row))
    }

    pub(crate) async fn sessions(
        &self,
        scope: &Scope,
        query: &SessionQuery,
    ) -> Outcome<Page<SessionSummary>> {
        let rows = self.rows(&sessions(scope, query)).await?;
        let items = rows
            .iter()
            .map(|row| Ok(summary(Stored::from_row(row)?.snapshot)?))
            .collect::<Outcome<Vec<_>>>()?;
        Ok(page(items, query.page_size(), |summary| &summary.latest))
    }
}

/// Selects a page of pending rows: a range of an index that holds only them.
///
/// Workers query runs without a heartbeat to take them over. The query skips rows that are being written, so
/// that many workers can query concurrently without waiting for each other.
pub(crate) fn pending(query: &PendingQuery) -> Statement<'static> {
    let mut statement = Statement::new("").with(limit(query.page_size()));
    let (silent, lock) = match query.silent_since {
        Some(moment) => {
            let moment = statement.bind(clamped_nanos(moment));
            (
                format!("AND s.heartbeat_at < {moment}"),
                "FOR SHARE OF s SKIP LOCKED",
            )
        }
        None => (String::new(), ""),
    };
    let beyond = match &query.after {
        Some(cursor) => {
            let at = statement.bind(clamped_nanos(cursor.created_at));
            let id = statement.bind(cursor.snapshot_id.as_str().as_bytes().to_vec());
            let scope = statement.bind(cursor.scope.as_str().as_bytes().to_vec());
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
