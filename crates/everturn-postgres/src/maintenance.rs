//! Maintenance: the remains of dead processes, PostgreSQL's vacuum, and tasks that one worker at a time runs.

use std::time::Duration;

use everturn_core::{Error, Result};
use tokio_postgres::types::Type;

use crate::PostgresStore;
use crate::connection::{NOW, Statement, column};
use crate::delete::Released;
use crate::fault::{Fault, Outcome};
use crate::inner::Inner;
use crate::position::{LineageKey, SessionKey};
use crate::verify::{UNUSED_DOCUMENTS, UNUSED_LINEAGES};

/// The tables, in the order in which they are vacuumed.
const TABLES: &[&str] = &[
    "session",
    "snapshot",
    "lineage",
    "message",
    "document",
    "blob",
    "message_blob",
    "document_blob",
    "journal",
    "ledger",
    "turn_lock",
    "turn_queue",
];

/// How long a session without snapshots is kept: its first turn may be in progress.
const EMPTY_FOR: Duration = Duration::from_hours(24);

/// How long a lapsed lock that no other turn takes is kept.
const LAPSED_FOR: Duration = Duration::from_hours(1);

impl PostgresStore {
    /// Deletes the remains of processes that died: unreferenced parts of rewritten snapshots, locks of dead
    /// turns, and sessions without a snapshot. Returns the number of deleted parts and sessions.
    ///
    /// Commits and reads continue meanwhile.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the database cannot be reached.
    pub async fn tidy(&self) -> Result<u64> {
        let outcome = self.inner().db.unhurried(self.inner().tidy()).await;
        self.result(outcome)
    }

    /// Frees the space of deleted rows and updates PostgreSQL's statistics.
    ///
    /// PostgreSQL does this automatically. Call it after a large deletion.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` if the user does not own the tables; `UNAVAILABLE` if the database cannot be
    /// reached.
    pub async fn vacuum(&self) -> Result<()> {
        let vacuum = async {
            let connection = self.inner().db.connection().await?;
            for table in TABLES {
                let sql = self.inner().db.qualified(&format!("VACUUM (ANALYZE) @{table}"));
                connection.batch_execute(&sql).await?;
            }
            Outcome::Ok(())
        };
        let outcome = self.inner().db.unhurried(vacuum).await;
        self.result(outcome)
    }

    /// Returns `true` to the first worker that calls it in each interval, by the database's clock.
    ///
    /// All workers schedule the same task, and one of them runs it:
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use everturn_agent::archive::{Retention, Tenants};
    /// # use everturn_postgres::PostgresStore;
    /// # async fn example(store: PostgresStore) -> everturn_core::Result<()> {
    /// let rules = Retention::default().no_older_than(Duration::from_hours(30 * 24));
    /// if store.is_due("retention", Duration::from_hours(1)).await? {
    ///     Tenants::of(store.clone()).retain(&rules).await?;
    ///     store.tidy().await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `UNAVAILABLE` if the database cannot be reached.
    pub async fn is_due(&self, task: &str, every: Duration) -> Result<bool> {
        let every = i64::try_from(every.as_nanos())
            .map_err(|_| Error::invalid_argument("the interval is too large: 292 years at most"))?;
        let statement = Statement::new(format!(
            "INSERT INTO @maintenance (name, due_at) VALUES ($1, {NOW} + $2) \
             ON CONFLICT (name) DO UPDATE SET due_at = EXCLUDED.due_at WHERE maintenance.due_at <= {NOW} RETURNING 1"
        ))
        .with(task.as_bytes().to_vec(), Type::BYTEA)
        .with(every, Type::INT8);
        // Not retried if its answer is lost. The task then waits for the next interval instead of running
        // twice.
        let rows = self.call(self.inner().db.run(&statement)).await?;
        Ok(!rows.is_empty())
    }
}

impl Inner {
    async fn tidy(&self) -> Outcome<u64> {
        let mut tidied = 0;
        for row in self.db.read(&Statement::new(UNUSED_LINEAGES)).await? {
            let session = session(&row)?;
            let mut released = Released::default();
            released.lineages.insert(LineageKey {
                session,
                number: column(&row, 3)?,
            });
            tidied += self.release_in_transaction(session, released).await?;
        }
        for row in self.db.read(&Statement::new(UNUSED_DOCUMENTS)).await? {
            let session = session(&row)?;
            let mut released = Released::default();
            released.documents.insert((session, column(&row, 3)?));
            tidied += self.release_in_transaction(session, released).await?;
        }
        tidied += self.forget_lapsed_locks().await?;
        let empty_for = i64::try_from(EMPTY_FOR.as_nanos()).unwrap_or(i64::MAX);
        let statement = Statement::new(format!(
            "WITH gone AS (DELETE FROM @session n WHERE n.tip IS NULL AND n.touched_at < {NOW} - $1 AND NOT EXISTS \
             (SELECT 1 FROM @snapshot s WHERE s.tenant = n.tenant AND s.session = n.key) AND NOT EXISTS \
             (SELECT 1 FROM @journal j WHERE j.tenant = n.tenant AND j.session = n.key) RETURNING 1) \
             SELECT count(*) FROM gone"
        ))
        .with(empty_for, Type::INT8);
        let rows = self.db.read(&statement).await?;
        let sessions: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
        Ok(tidied + sessions.cast_unsigned())
    }

    /// Deletes the locks and queue positions of turns whose processes died long ago.
    async fn forget_lapsed_locks(&self) -> Outcome<u64> {
        let lapsed_for = i64::try_from(LAPSED_FOR.as_nanos()).unwrap_or(i64::MAX);
        let statement = Statement::new(format!(
            "WITH locks AS (DELETE FROM @turn_lock WHERE until < {NOW} - $1 RETURNING 1), \
             places AS (DELETE FROM @turn_queue WHERE until < {NOW} - $1 RETURNING 1) \
             SELECT (SELECT count(*) FROM locks) + (SELECT count(*) FROM places)"
        ))
        .with(lapsed_for, Type::INT8);
        let rows = self.db.read(&statement).await?;
        let forgotten: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
        Ok(forgotten.cast_unsigned())
    }

    async fn release_in_transaction(&self, session: SessionKey, released: Released) -> Outcome<u64> {
        match self.release(session, released).await {
            Ok(()) => Ok(1),
            // A writer was faster; the next maintenance deletes the rest.
            Err(fault) if fault.is_conflict() => Ok(0),
            Err(fault) => Err(fault),
        }
    }
}

fn session(row: &tokio_postgres::Row) -> Result<SessionKey, Fault> {
    Ok(SessionKey {
        tenant: column(row, 1)?,
        id: column(row, 2)?,
    })
}
