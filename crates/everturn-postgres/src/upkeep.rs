//! Upkeep on a schedule that one process at a time carries out.

use std::time::Duration;

use everturn_agent::archive::{Retention, Tenants};
use everturn_core::Result;
use tokio_util::task::AbortOnDropHandle;

use crate::PostgresStore;

/// The name under which the processes agree on who does it.
const CHORE: &str = "upkeep";

/// How many times in an interval a process asks whether upkeep is due.
const ASKS: u32 = 4;

/// A schedule of upkeep, from [`PostgresStore::upkeep`]. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "upkeep ends when this is dropped"]
pub struct Upkeep {
    _task: AbortOnDropHandle<()>,
}

impl PostgresStore {
    /// Carries out rules of retention for all tenants, and [tidies up](PostgresStore::tidy), once in each interval. Every
    /// process of a program calls this; one of them does the work, and another if that one dies.
    ///
    /// A failure is logged, and tried again in the next interval. Upkeep ends when the returned value is dropped.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use everturn_agent::archive::Retention;
    /// # use everturn_postgres::PostgresStore;
    /// # async fn example(store: PostgresStore) {
    /// let rules = Retention::default().no_older_than(Duration::from_hours(30 * 24));
    /// let _upkeep = store.upkeep(Duration::from_hours(1), rules);
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn upkeep(&self, every: Duration, rules: Retention) -> Upkeep {
        let store = self.clone();
        let task = tokio::spawn(async move {
            let mut asks = tokio::time::interval(every / ASKS);
            asks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                asks.tick().await;
                if let Err(error) = store.keep_up(every, &rules).await {
                    tracing::warn!(%error, "upkeep of the session database failed; it is tried again");
                }
            }
        });
        Upkeep {
            _task: AbortOnDropHandle::new(task),
        }
    }

    async fn keep_up(&self, every: Duration, rules: &Retention) -> Result<()> {
        if !self.is_due(CHORE, every).await? {
            return Ok(());
        }
        Tenants::of(self.clone()).retain(rules).await?;
        self.tidy().await.map(drop)
    }
}
