//! Listings: the snapshots of a session and the sessions of a tenant, page by page.

use everturn_agent::Snapshot;
use everturn_agent::store::{Cursor, Page, Scope, SessionQuery, SessionSummary, SnapshotQuery};
use everturn_sql::{clamped_nanos, page, sql_order, summary};
use tokio_postgres::types::Type;

use crate::connection::{Patience, Statement};
use crate::fault::{Fault, Outcome};
use crate::position::{SessionKey, tenant};
use crate::read::Reading;
use crate::row::{COLUMNS, Stored};

/// Selects a page of a session's snapshots: a range of an index.
pub(crate) fn snapshots(scope: &Scope, query: &SnapshotQuery) -> Statement<'static> {
    let (direction, beyond) = sql_order(query.order);
    let key = SessionKey::of(scope, query.session.as_str());
    let mut statement = Statement::new("")
        .with(key.tenant, Type::INT4)
        .with(key.id, Type::UUID)
        .with(limit(query.page_size()), Type::INT8);
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
    let mut statement = Statement::new("")
        .with(tenant(scope), Type::INT4)
        .with(scope.as_str().as_bytes().to_vec(), Type::BYTEA)
        .with(limit(query.page_size()), Type::INT8);
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
    let at = statement.bind(clamped_nanos(cursor.created_at), Type::INT8);
    let id = statement.bind(cursor.snapshot_id.as_str().as_bytes().to_vec(), Type::BYTEA);
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
