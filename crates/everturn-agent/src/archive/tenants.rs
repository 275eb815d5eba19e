//! All tenants of a store, for its operator.

use std::sync::Arc;

use everturn_core::stream_log::{IntoStreamLog, StreamLog};
use everturn_core::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::retention::horizon;
use super::{Archive, Retention, RetentionReport};
use crate::Clock;
use crate::store::{IntoStore, Journal, JournalKey, JournalRecord, Page, Scope, SessionStore};

/// The scope under which deletions of tenants are recorded. It is not a tenant.
const OPERATOR: &str = "everturn-operator";

/// The session under which deletions of tenants are recorded.
const DELETIONS: &str = "deletions";

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
/// // A customer leaves: sessions, journals and streams are gone. Alice has none here.
/// let nobody = tenants.delete(&Principal::new("alice").scope(), None).await.unwrap_err();
/// assert_eq!(nobody.status(), everturn_core::Status::NotFound);
///
/// // Nobody's conversations are kept for longer than a month.
/// tenants.retain(&Retention::default().no_older_than(Duration::from_hours(30 * 24))).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tenants {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) clock: Clock,
    /// The logs from which deleted sessions are erased.
    pub(crate) streams: Vec<Arc<dyn StreamLog>>,
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

    /// Returns one page of the tenants that have snapshots, journals or accounts, by name; `after` is the end
    /// of the page before. [`Scope::tenant`] is a tenant's readable name, if the store has one.
    ///
    /// # Errors
    /// The store's own errors; `UNIMPLEMENTED` if it cannot list tenants.
    pub async fn list(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        page(&*self.store, after).await
    }

    /// Returns a tenant with its readable name, if the store has one.
    ///
    /// # Errors
    /// `NOT_FOUND` if the tenant has nothing in the store; as [`Tenants::list`].
    pub async fn get(&self, tenant: &Scope) -> Result<Scope> {
        find(&*self.store, tenant).await
    }

    /// Deletes everything of a tenant permanently, as [`Archive::delete_all`], and returns the number of
    /// snapshots.
    ///
    /// With the id of a request, the outcome is recorded in the store: the same request again returns it,
    /// also after the tenant has come back. It is forgotten when journals of that age are dropped, by
    /// [retention](Tenants::retain) or by agents.
    ///
    /// # Errors
    /// `NOT_FOUND` if the tenant has nothing in the store; `INVALID_ARGUMENT` if the request deleted another
    /// tenant; `UNIMPLEMENTED` for a request's id if the store keeps no journals; as [`Archive::delete_all`].
    pub async fn delete(&self, tenant: &Scope, request: Option<&str>) -> Result<u64> {
        let Some(request) = request else {
            return self.archive(tenant.clone()).delete_all().await;
        };
        let record = DeletionRecord::of(self.store.as_ref(), request)?;
        let archive = self.archive(tenant.clone());
        // An attempt before this one may have deleted some of them.
        let counted = match record.read(tenant).await? {
            Some(step) if step.is_over => return Ok(step.snapshots),
            Some(begun) => begun.snapshots,
            None => {
                self.get(tenant).await?;
                // A tenant whose data is damaged can be deleted too, although it cannot be counted.
                let snapshots = archive.count().await.unwrap_or(0);
                record.write(0, tenant, snapshots, false).await?;
                0
            }
        };
        let snapshots = archive.erase().await?.max(counted);
        record.write(1, tenant, snapshots, true).await?;
        Ok(snapshots)
    }

    /// Returns the archive of a tenant; it shows snapshots as they are stored.
    pub fn archive(&self, tenant: Scope) -> Archive {
        Archive::of(Arc::clone(&self.store), tenant)
            .with_clock(self.clock.clone())
            .with_logs(self.streams.clone())
    }

    /// Applies rules to the sessions of all tenants, and drops the journals that are too old. Sessions of
    /// which nothing is left are erased from the stream logs too.
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

everturn_core::opaque_debug!(Tenants, store);

async fn page(store: &dyn SessionStore, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
    let mut page = store.tenants(after).await?;
    page.items.retain(|tenant| tenant.as_str() != OPERATOR);
    Ok(page)
}

/// Returns a tenant with its readable name, if the store has one.
///
/// # Errors
/// `NOT_FOUND` if the tenant has nothing in the store; the errors of [`SessionStore::tenants`].
pub(super) async fn find(store: &dyn SessionStore, tenant: &Scope) -> Result<Scope> {
    // The page that begins shortly before the tenant.
    let mut before = tenant.as_str().chars();
    before.next_back();
    let mut after = Some(Scope::new(before.as_str()));
    loop {
        let page = page(store, after.as_ref()).await?;
        if let Some(found) = page.items.iter().find(|found| *found == tenant) {
            return Ok(found.clone());
        }
        match page.next {
            Some(next) if next < *tenant => after = Some(next),
            _ => return Err(no_tenant(tenant)),
        }
    }
}

fn no_tenant(tenant: &Scope) -> Error {
    let name = match tenant.tenant() {
        Some(readable) => format!("'{readable}' ({})", tenant.as_str()),
        None => format!("'{}'", tenant.as_str()),
    };
    Error::not_found(format!(
        "there is no tenant {name}: nothing is stored under that name; list the tenants for their names"
    ))
    .with_public()
}

/// The record of one request to delete a tenant: a journal with a record when it begins and one when it ends.
struct DeletionRecord<'a> {
    journal: &'a dyn Journal,
    scope: Scope,
    key: JournalKey,
}

#[derive(Serialize, Deserialize)]
struct DeletionStep {
    tenant: Scope,
    /// The number of snapshots: those that were counted before the deletion, or that it deleted.
    snapshots: u64,
    is_over: bool,
}

impl<'a> DeletionRecord<'a> {
    fn of(store: &'a dyn SessionStore, request: &str) -> Result<Self> {
        let journal = store.journal().ok_or_else(|| {
            Error::unimplemented(
                "this store keeps no journals, so a deletion cannot have the id of a request",
            )
            .with_public()
        })?;
        // Ids may have any characters and any length.
        let mut half = [0; 16];
        half.copy_from_slice(&Sha256::digest(request.as_bytes())[..16]);
        let name = format!("{:032x}", u128::from_be_bytes(half));
        Ok(Self {
            journal,
            scope: Scope::new(OPERATOR),
            key: JournalKey::new(DELETIONS.into(), name),
        })
    }

    /// Returns the last step of the request; `None` if it is new.
    async fn read(&self, tenant: &Scope) -> Result<Option<DeletionStep>> {
        let mut known = None;
        for record in self.journal.read(&self.scope, &self.key).await? {
            let step: DeletionStep = serde_json::from_value(record.body)?;
            if step.tenant != *tenant {
                return Err(Error::invalid_argument(
                    "a request with this id deleted another tenant; use another id",
                )
                .with_public());
            }
            known = Some(step);
        }
        Ok(known)
    }

    async fn write(&self, sequence: u64, tenant: &Scope, snapshots: u64, is_over: bool) -> Result<()> {
        let step = DeletionStep {
            tenant: tenant.clone(),
            snapshots,
            is_over,
        };
        let record = JournalRecord {
            sequence,
            body: serde_json::to_value(step)?,
        };
        self.journal.append(&self.scope, &self.key, record, None).await
    }
}
