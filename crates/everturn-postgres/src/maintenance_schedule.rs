//! Scheduled maintenance, which one process at a time performs.

use std::time::Duration;

use everturn_agent::archive::{Retention, Tenants};
use everturn_core::Result;
use tokio_util::task::AbortOnDropHandle;

use crate::PostgresStore;

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
