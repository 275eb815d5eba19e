//! All tenants of a store, for its operator.

use std::fmt;
use std::sync::Arc;

use everturn_core::Result;
use everturn_core::stream_log::{IntoStreamLog, StreamLog};

use super::retention::horizon;
use super::{Archive, Retention, RetentionReport};
use crate::Clock;
use crate::store::{IntoStore, Page, Scope, SessionStore};

/// All tenants of a store. It is for the store's operator: nothing keeps one tenant from another here.
///
/// [`Agent::tenants`](crate::Agent::tenants) returns those of an agent's store.
///
/// ```
/// use std::time::Duration;
///
/// use everturn_agent::archive::{Retention, Tenants};
/// use everturn_agent::store::MemoryStore;
/// use everturn_core::{Principal, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let tenants = Tenants::of(MemoryStore::new());
///
/// // A customer leaves: sessions, journals and streams are gone.
/// tenants.archive(Principal::new("alice").scope()).delete_all().await?;
///
/// // Nobody's conversations are kept for longer than a month.
/// tenants.retain(&Retention::default().no_older_than(Duration::from_hours(30 * 24))).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tenants {
    store: Arc<dyn SessionStore>,
    clock: Clock,
    streams: Vec<Arc<dyn StreamLog>>,
}

impl Tenants {
    /// Returns the tenants of a store.
    pub fn of(store: impl IntoStore) -> Self {
        Self {
            store: store.into_store(),
            clock: Clock::system(),
            streams: Vec::new(),
        }
    }

    pub(crate) fn with(store: Arc<dyn SessionStore>, clock: Clock, streams: Vec<Arc<dyn StreamLog>>) -> Self {
        Self {
            store,
            clock,
            streams,
        }
    }

    /// Adds a log that keeps streams of these tenants: what is deleted is erased there too.
    #[must_use]
    pub fn with_streams(mut self, log: impl IntoStreamLog) -> Self {
        self.streams.push(log.into_stream_log());
        self
    }

    /// Sets the clock for retention by age.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns one page of the tenants that have snapshots or journals, by name; `after` is the end of the page before.
    ///
    /// # Errors
    /// The store's own errors; `UNIMPLEMENTED` if it cannot list tenants.
    pub async fn list(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        self.store.tenants(after).await
    }

    /// Returns the archive of a tenant; it shows snapshots as they are stored.
    pub fn archive(&self, tenant: Scope) -> Archive {
        Archive::of(Arc::clone(&self.store), tenant)
            .with_clock(self.clock.clone())
            .with_logs(self.streams.clone())
    }

    /// Applies rules to the sessions of all tenants, and drops the journals that are too old. Sessions of which nothing is left
    /// are erased from the stream logs too.
    ///
    /// # Errors
    /// As [`Tenants::list`] and [`Archive::retain`]; what was deleted until then stays deleted.
    pub async fn retain(&self, rules: &Retention) -> Result<RetentionReport> {
        let mut report = RetentionReport::default();
        let mut after = None;
        loop {
            let page = self.list(after.as_ref()).await?;
            for tenant in page.items {
                let of_tenant = self.archive(tenant).retain(rules).await?;
                report.sessions += of_tenant.sessions;
                report.snapshots += of_tenant.snapshots;
                report.trimmed.extend(of_tenant.trimmed);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if let (Some(horizon), Some(journal)) = (horizon(rules, self.clock.now()), self.store.journal()) {
            journal.sweep(horizon).await?;
        }
        Ok(report)
    }
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
