//! The store: every method of the trait, as statements of the database.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::store::{
    Deletion, Detail, Journal, JournalKey, Mutation, Page, PendingPage, PendingQuery, Precondition, Scope,
    SessionQuery, SessionStore, SessionSummary, SnapshotQuery, StatusStream, TurnLocks, UsageLedger,
    page_of_tenants,
};
use everturn_agent::{Clock, SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};

use crate::cache::Cache;
use crate::connection::{Address, Database};
use crate::fault::{Fault, Outcome};
use crate::inner::Inner;
use crate::listen::Channel;
use crate::options::PostgresStoreOptions;
use crate::schema;
use crate::watch::Watchers;
use crate::write::Wish;

/// A session store in a PostgreSQL database.
///
/// A clone is another handle to the same store. Its connections are closed when the last handle is dropped.
/// Any number of processes, on any number of machines, may use the same schema at the same time. The store's
/// guarantees are listed in the [crate's documentation](crate).
#[derive(Clone)]
pub struct PostgresStore(Arc<Inner>);

impl PostgresStoreOptions {
    /// Opens the store, creating the tables if they do not exist and migrating an older schema.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a connection string that cannot be read or a setting of zero; `UNAVAILABLE` if
    /// the database cannot be reached; `PERMISSION_DENIED` for a wrong password, or a user that may not
    /// create missing tables; `FAILED_PRECONDITION` for tables of a newer version.
    pub async fn open(self) -> Result<PostgresStore> {
        self.check()?;
        let db = Database::new(&self)?;
        let listen_address = match (&self.listen_url, self.listen) {
            (_, false) => None,
            (Some(url), true) => Some(Address::parse(url, &self)?),
            (None, true) => Some(db.address.clone()),
        };
        schema::sessions(&self.schema)
            .migrate(&db, self.migrate)
            .await
            .map_err(|fault| fault.into_error(&db.place))?;
        db.ask_time().await.map_err(|fault| fault.into_error(&db.place))?;
        let channel = Channel {
            name: format!("everturn {}", self.schema),
            address: listen_address,
        };
        let db = Arc::new(db);
        db.close_idle_connections();
        Ok(PostgresStore(Arc::new(Inner {
            watchers: Watchers::start(&db, self.poll, channel),
            db,
            cache: Cache::new(self.cache_bytes),
            encoding: self.encoding,
        })))
    }

    fn check(&self) -> Result<()> {
        let zero = |name: &str| Err(Error::invalid_argument(format!("{name} is 0 and must be more")));
        match self {
            _ if self.connections == 0 => zero("connections"),
            _ if self.poll.is_zero() => zero("poll_every"),
            _ if self.patience.is_zero() => zero("patience"),
            _ if self.connect_timeout.is_zero() => zero("connect_timeout"),
            _ if self.checkout_timeout.is_zero() => zero("checkout_timeout"),
            _ if self.statement_timeout.is_zero() => zero("statement_timeout"),
            // The channel of notifications has the schema in its name, which PostgreSQL cuts at 63 bytes.
            _ if self.schema.is_empty() || self.schema.len() > 50 || self.schema.contains('\0') => {
                Err(Error::invalid_argument(format!(
                    "'{}' is no name for a schema: it must have 1 to 50 bytes",
                    self.schema.escape_default()
                )))
            }
            _ => self.encoding.check(),
        }
    }
}

impl PostgresStore {
    /// Opens the store in a database, named by a connection string such as
    /// `postgres://user:password@host:5432/database`, in the schema `everturn`.
    ///
    /// The connection is encrypted and the server's certificate verified, unless the server is on this
    /// machine or the string has `sslmode=disable`.
    ///
    /// # Errors
    /// As [`PostgresStoreOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self> {
        Self::options(url).open().await
    }

    /// Returns the settings of a store in a database, to change before it is opened.
    pub fn options(url: impl AsRef<str>) -> PostgresStoreOptions {
        PostgresStoreOptions::new(url.as_ref())
    }

    /// Returns the SQL that creates the tables in a schema, or migrates those of version `from`, for
    /// operators who run migrations themselves. Version 0 means that there are no tables yet.
    pub fn migration_sql(schema: &str, from: usize) -> String {
        schema::sessions(schema).migration(from)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// Runs one call of the store, which ends by its deadline.
    pub(crate) fn call<T, F>(&self, work: F) -> impl Future<Output = Result<T>> + use<'_, T, F>
    where
        F: Future<Output = Outcome<T>>,
    {
        let call = self.0.db.within(work);
        async move { self.result(call.await) }
    }

    pub(crate) fn result<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|fault| fault.into_error(&self.0.db.place))
    }
}

#[async_trait]
impl SessionStore for PostgresStore {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        self.call(self.0.reading().get(scope, id.as_str(), detail)).await
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        if session.as_str().is_empty() {
            return Err(Error::invalid_argument(
                "a session id is needed to find its latest snapshot",
            ));
        }
        self.call(self.0.reading().latest(scope, session.as_str(), detail))
            .await
    }

    async fn commit(
        &self,
        scope: &Scope,
        id: Option<&SnapshotId>,
        precondition: Precondition,
        mutation: Mutation,
        journals: &[JournalKey],
    ) -> Result<Option<Snapshot>> {
        let wish = Wish {
            scope,
            id,
            precondition: &precondition,
            mutation: &mutation,
            journals,
        };
        let outcome = self.0.db.within(self.0.commit(&wish)).await;
        if let Err(Fault::Unknown(save)) = &outcome {
            self.find_out(scope, save, wish.precondition);
        }
        self.result(outcome)
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        self.call(self.0.reading().list(scope, query)).await
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        self.call(self.0.reading().sessions(scope, query)).await
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        self.call(self.0.reading().children(scope, id.as_str())).await
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        let deleting = async {
            match deletion {
                Deletion::Tenant => self.0.delete_tenant(scope).await,
                _ => self.0.delete(scope, deletion).await,
            }
        };
        let outcome = self.0.db.unhurried(deleting).await;
        self.result(outcome)
    }

    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        let known = self.call(self.0.tenants()).await?;
        Ok(page_of_tenants(known, after))
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        self.call(self.0.reading().pending(query)).await.map(Some)
    }

    fn watch(&self, scope: &Scope, id: &SnapshotId) -> Option<StatusStream> {
        Some(self.0.watchers.watch((scope.clone(), id.clone())))
    }

    fn can_watch(&self) -> bool {
        true
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn UsageLedger> {
        Some(self)
    }

    fn clock(&self) -> Clock {
        let db = Arc::clone(&self.0.db);
        Clock::new(move || db.time.now())
    }

    fn turn_locks(&self) -> Option<&dyn TurnLocks> {
        Some(self)
    }
}

everturn_core::opaque_debug!(PostgresStore, 0.db.place);
