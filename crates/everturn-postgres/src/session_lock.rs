//! A session's row, locked for a writer that has lost several races.
//!
//! A writer compares the session's version and loses if another one was faster. Where many turns branch from
//! one session, a process that has just written need not read, and wins again and again. A writer that keeps
//! losing locks the row, reads and writes in one transaction. The database grants such locks in order.

use deadpool_postgres::Transaction;
use tokio::sync::SemaphorePermit;

use crate::connection::Database;
use crate::fault::{Fault, Outcome};
use crate::position::SessionKey;
use crate::slots::Pooled;
use crate::statement::Statement;

/// How many races a writer loses before it locks the session's row.
pub(crate) const RACES: u32 = 3;

/// A connection for a transaction that locks a session's row.
pub(crate) struct SessionLock<'a> {
    db: &'a Database,
    connection: Pooled,
    _place: SemaphorePermit<'a>,
}

impl<'a> SessionLock<'a> {
    /// Waits for a connection. The writers that lock rows use at most half of the connections of the process.
    pub(crate) async fn new(db: &'a Database) -> Outcome<Self> {
        let place = db.in_time(db.lockers.acquire()).await;
        let place = place.and_then(Result::ok).ok_or(Fault::Moved)?;
        Ok(Self {
            db,
            connection: db.connection().await?,
            _place: place,
        })
    }

    /// Begins a transaction and locks the row. A session that does not exist yet has none.
    pub(crate) async fn take(&mut self, session: SessionKey) -> Outcome<Transaction<'_>> {
        let transaction = self.db.bounded(self.connection.transaction()).await?;
        let lock = Statement::new("SELECT 1 FROM @session WHERE tenant = $1 AND key = $2 FOR NO KEY UPDATE")
            .with(session);
        self.db.run_on(transaction.client(), &lock).await?;
        Ok(transaction)
    }

    /// Returns the connection to the pool, or closes it if it failed.
    pub(crate) fn end(self, fault: Option<&Fault>) {
        if fault.is_some_and(Fault::is_lost) {
            self.connection.close();
        }
    }
}
