//! Maintenance: the remains of dead processes, PostgreSQL's vacuum, and tasks that one worker at a time runs.

use std::time::Duration;

use everturn_agent::archive::{Retention, Tenants};
use everturn_core::{Error, Result};
use tokio_util::task::AbortOnDropHandle;

use crate::PostgresStore;
use crate::connection::NOW;
use crate::delete::Released;
use crate::fault::Outcome;
use crate::inner::Inner;
use crate::position::SessionKey;
use crate::statement::{Statement, column, session_key};
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
        )).with((task, every));
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
            let session = session_key(&row, 1)?;
            let mut released = Released::default();
            released.lineages.insert(session.lineage(column(&row, 3)?));
            tidied += self.release_in_transaction(session, released).await?;
        }
        for row in self.db.read(&Statement::new(UNUSED_DOCUMENTS)).await? {
            let session = session_key(&row, 1)?;
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
        )).with(empty_for);
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
        .with(lapsed_for);
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

/// The name of the task in the database.
const TASK: &str = "maintenance";

/// How many times in an interval a process checks whether maintenance is due.
const CHECKS: u32 = 4;

/// Scheduled maintenance, from [`PostgresStore::schedule_maintenance`]. Dropping it ends the schedule.
#[derive(Debug)]
#[must_use = "maintenance ends when this is dropped"]
pub struct MaintenanceSchedule {
    _task: AbortOnDropHandle<()>,
}

impl PostgresStore {
    /// Applies retention rules to all tenants and [tidies up](PostgresStore::tidy), once in each interval.
    /// Every process of a program calls this. One of them does the work; if it dies, another takes over.
    ///
    /// A failure is logged, and retried in the next interval. The schedule ends when the returned value is
    /// dropped.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use everturn_agent::archive::Retention;
    /// # use everturn_postgres::PostgresStore;
    /// # async fn example(store: PostgresStore) {
    /// let rules = Retention::default().no_older_than(Duration::from_hours(30 * 24));
    /// let _maintenance = store.schedule_maintenance(Duration::from_hours(1), rules);
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn schedule_maintenance(&self, every: Duration, rules: Retention) -> MaintenanceSchedule {
        let store = self.clone();
        let task = tokio::spawn(async move {
            let mut checks = tokio::time::interval(every / CHECKS);
            checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                checks.tick().await;
                if let Err(error) = store.maintain(every, &rules).await {
                    tracing::warn!(%error, "maintenance of the session database failed; it is retried in the next interval");
                }
            }
        });
        MaintenanceSchedule {
            _task: AbortOnDropHandle::new(task),
        }
    }

    async fn maintain(&self, every: Duration, rules: &Retention) -> Result<()> {
        if !self.is_due(TASK, every).await? {
            return Ok(());
        }
        Tenants::of(self.clone()).retain(rules).await?;
        self.tidy().await.map(drop)
    }
}
