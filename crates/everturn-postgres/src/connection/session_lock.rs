//! A session's row, locked for a writer that has lost several races.
//!
//! A writer compares the session's version and loses if another one was faster. Where many write to one
//! session, such as turns that branch, a process that has just written wins again and again, because it need
//! not read. A writer that keeps losing locks the row, reads and writes on one connection, and lets go of it:
//! the database grants such locks in order.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use deadpool_postgres::Object;
use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Database, Patience, Statement};
use crate::fault::{Fault, Outcome};

/// How many races a writer loses before it locks the row.
pub(crate) const RACES: u32 = 3;

/// How many writers of this process lock rows at the same time. Each takes a connection, and those of one
/// session would only wait for each other.
const QUEUES: usize = 8;

tokio::task_local! {
    /// The connection on which the current task has locked a row; all its statements run there.
    static HELD: Arc<HeldConnection>;
}

/// The writers of this process that wait to lock a row, by session.
#[derive(Default)]
pub(crate) struct Queues([Mutex<()>; QUEUES]);

impl Queues {
    fn of(&self, session: Uuid) -> &Mutex<()> {
        let (high, low) = session.as_u64_pair();
        let number = usize::try_from((high ^ low) % QUEUES as u64).unwrap_or_default();
        &self.0[number]
    }
}

/// A connection with a transaction. If it is dropped before its end, it is closed, which undoes the
/// transaction.
pub(crate) struct HeldConnection(Option<Object>);

impl HeldConnection {
    /// Returns the connection of the current task, if it has locked a row.
    pub(crate) fn current() -> Option<Arc<Self>> {
        HELD.try_with(Arc::clone).ok()
    }

    pub(crate) fn client(&self) -> Option<&tokio_postgres::Client> {
        self.0.as_deref().map(Deref::deref)
    }

    /// Ends the transaction and returns the connection to its pool.
    async fn end(mut self) {
        if let Some(connection) = self.0.take() {
            // After a commit there is none, which is only a warning.
            match connection.batch_execute("ROLLBACK").await {
                Ok(()) => drop(connection),
                Err(_) => drop(Object::take(connection)),
            }
        }
    }
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(Object::take(connection));
        }
    }
}

impl Database {
    /// Runs the statement that a writer is about, and commits the transaction if it has one.
    pub(crate) async fn write(&self, statement: &Statement<'_>) -> Outcome<Vec<Row>> {
        let rows = self.run(statement).await?;
        if let Some(held) = HeldConnection::current()
            && let Some(client) = held.client()
        {
            client.batch_execute("COMMIT").await?;
        }
        Ok(rows)
    }

    /// Makes an attempt to write to a session while its row is locked. The attempt writes with
    /// [`Database::write`].
    pub(crate) async fn with_session_locked<T>(
        &self,
        (tenant, session): (i32, Uuid),
        patience: &Patience,
        attempt: impl Future<Output = Outcome<T>>,
    ) -> Outcome<T> {
        let queue = self.queues.of(session).lock();
        let Ok(_turn) = tokio::time::timeout(patience.left(), queue).await else {
            return Err(Fault::Moved);
        };
        let connection = self.connection().await?;
        let held = Arc::new(HeldConnection(Some(connection)));
        if let Some(client) = held.client() {
            client.batch_execute("BEGIN").await?;
            // A session that does not exist yet has no row to lock.
            let lock = Statement::new("SELECT 1 FROM @session WHERE tenant = $1 AND key = $2 FOR UPDATE")
                .with(tenant, Type::INT4)
                .with(session, Type::UUID);
            self.run_on(client, &lock).await?;
        }
        let outcome = HELD.scope(Arc::clone(&held), attempt).await;
        if let Ok(held) = Arc::try_unwrap(held) {
            held.end().await;
        }
        outcome
    }
}
