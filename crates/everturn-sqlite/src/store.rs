//! The store: every method of the trait, as work for readers and the writer.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::store::{
    Deletion, Detail, Journal, JournalKey, Mutation, Page, PendingPage, PendingQuery, Precondition, Scope,
    SessionQuery, SessionStore, SessionSummary, SnapshotQuery, StatusStream, TurnLocks, UsageLedger,
    id_to_save, page_of_tenants,
};
use everturn_agent::{Clock, SessionId, Snapshot, SnapshotId};
use everturn_core::{Error, Result};
use parking_lot::Mutex;

use crate::cache::{Cache, Memory};
use crate::connection::{Pool, Reader, Thoroughness, deadline_after, with_deadline};
use crate::fault::Outcome;
use crate::latest_cache::LatestCache;
use crate::options::SqliteStoreOptions;
use crate::read::Reading;
use crate::row::Stored;
use crate::watch::Watchers;
use crate::work::Prepared;
use crate::writer::Writer;

/// A session store in a SQLite database.
///
/// A clone is another handle to the same store. Dropping the last handle closes the database as
/// [`SqliteStore::close`] does, and blocks meanwhile. Other processes may have it open at the same time. The
/// store's guarantees are listed in the [crate's documentation](crate).
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    options: SqliteStoreOptions,
    memory: Arc<Mutex<Memory>>,
    readers: Pool<Reader>,
    writer: Writer,
    watchers: Arc<Watchers>,
    latest: Arc<LatestCache>,
}

impl Inner {
    /// Closes every connection, and blocks meanwhile. The writer's connection is the last, because it moves
    /// the log into the file.
    fn close(&self) {
        self.watchers.close();
        self.latest.close();
        self.readers.close_idle();
        self.writer.close();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl SqliteStoreOptions {
    /// Opens the store, creating the file if it does not exist and migrating an older schema.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` for a database of a newer version, one that belongs to another program, or a
    /// folder that does not exist; `DATA_LOSS` for a file that is not a database; `PERMISSION_DENIED` for a
    /// file that is read-only; `INVALID_ARGUMENT` for a setting of zero.
    pub async fn open(self) -> Result<SqliteStore> {
        if self.readers == 0 {
            return Err(Error::invalid_argument("readers is 0 and must be at least 1"));
        }
        if self.poll.is_zero() {
            return Err(Error::invalid_argument(
                "poll_every needs an interval longer than zero",
            ));
        }
        self.encoding.check()?;
        tokio::task::spawn_blocking(|| SqliteStore::start(self)).await?
    }
}

impl SqliteStore {
    /// Opens the store in a file, creating the file if it does not exist. Every save is on the device before
    /// it is acknowledged.
    ///
    /// # Errors
    /// As [`SqliteStoreOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options(path).open().await
    }

    /// Returns the settings of a store in a file, to change before it is opened.
    pub fn options(path: impl AsRef<Path>) -> SqliteStoreOptions {
        SqliteStoreOptions::new(path.as_ref())
    }

    pub(crate) fn start(options: SqliteStoreOptions) -> Result<Self> {
        let memory = Arc::new(Mutex::new(Memory::new(options.cache_bytes)));
        let watchers = Arc::new(Watchers::new(options.clone()));
        // First, because it creates or migrates the schema that the readers expect.
        let latest = Arc::new(LatestCache::new(options.path.clone()));
        let writer = Writer::start(
            options.clone(),
            Arc::clone(&memory),
            Arc::clone(&watchers),
            Arc::clone(&latest),
        )?;
        let (path, patience) = (options.path.clone(), options.busy_timeout);
        let readers = Pool::open(options.readers, move || Reader::open(&path, patience))
            .map_err(|fault| fault.into_error(&options.path))?;
        Ok(Self(Arc::new(Inner {
            options,
            memory,
            readers,
            writer,
            watchers,
            latest,
        })))
    }

    /// Closes the database: finishes the saves and reads in progress, moves everything into the database file
    /// and removes the write-ahead log.
    ///
    /// Saves that wait for another process fail with `UNAVAILABLE`. Afterwards every method of every handle
    /// fails with `FAILED_PRECONDITION`, and watches end. The write-ahead log stays while another process has
    /// the database open.
    ///
    /// Call it at the end of a program whose agents live until the process ends. Otherwise the store is
    /// closed when its agents are dropped.
    ///
    /// # Errors
    /// `INTERNAL` if the runtime is shutting down.
    pub async fn close(&self) -> Result<()> {
        self.0.readers.close().await;
        let inner = Arc::clone(&self.0);
        Ok(tokio::task::spawn_blocking(move || inner.close()).await?)
    }

    /// Returns the file of the store.
    pub fn path(&self) -> &Path {
        &self.0.options.path
    }

    pub(crate) fn settings(&self) -> &SqliteStoreOptions {
        &self.0.options
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.0.writer
    }

    pub(crate) fn latest_cache(&self) -> &LatestCache {
        &self.0.latest
    }

    pub(crate) fn close_idle_readers(&self) {
        self.0.readers.close_idle();
    }

    /// Returns the latest snapshot of a session, if all of it is cached and no other connection has written
    /// since.
    fn remembered(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Option<Snapshot> {
        let Stored {
            mut snapshot, state, ..
        } = self.0.latest.now(scope, session)?;
        if detail == Detail::Whole {
            let cache = Cache::new(&self.0.memory);
            snapshot.state = match state {
                Some(state) => Some(cache.state(state)?),
                None => None,
            };
        }
        Some(snapshot)
    }

    /// Runs `work` on one consistent view of the store, on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Reading<'_>) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        let deadline = deadline_after(self.0.options.busy_timeout);
        let _permit = self.0.readers.permit().await?;
        let inner = Arc::clone(&self.0);
        let read = move || {
            let read = || inner.readers.with(|reader| reader.read(&inner.memory, work));
            with_deadline(deadline, read)
        };
        let outcome = tokio::task::spawn_blocking(read).await?;
        outcome.map_err(|fault| fault.into_error(self.path()))
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn get(&self, scope: &Scope, id: &SnapshotId, detail: Detail) -> Result<Option<Snapshot>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.read(move |reading| reading.get(scope.as_str(), id.as_str(), detail))
            .await
    }

    async fn latest(&self, scope: &Scope, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        if session.as_str().is_empty() {
            return Err(Error::invalid_argument(
                "a session id is needed to find its latest snapshot",
            ));
        }
        if let Some(known) = self.remembered(scope, session, detail) {
            return Ok(Some(known));
        }
        let (scope, session) = (scope.clone(), session.clone());
        self.read(move |reading| reading.latest(scope.as_str(), session.as_str(), detail))
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
        let id = id_to_save(id);
        let (scope, journals) = (scope.clone(), journals.to_vec());
        let mut is_first = true;
        self.0
            .writer
            .prepare_and_write(
                move |preparing| {
                    let is_first = std::mem::take(&mut is_first);
                    match preparing.save(&scope, &id, &mutation, is_first)? {
                        Some(save) => {
                            let bytes = save.bytes();
                            Ok(Prepared::Write(save, bytes))
                        }
                        None => Ok(Prepared::Done(None)),
                    }
                },
                move |writing, save| {
                    for key in &journals {
                        writing.clear(&save.scope, key)?;
                        writing.close_turn(&save.scope, key)?;
                    }
                    writing.save(save, &precondition).map(Some)
                },
            )
            .await
    }

    async fn list(&self, scope: &Scope, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let (scope, query) = (scope.clone(), query.clone());
        self.read(move |reading| reading.list(scope.as_str(), &query))
            .await
    }

    async fn sessions(&self, scope: &Scope, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let (scope, query) = (scope.clone(), query.clone());
        self.read(move |reading| reading.sessions(scope.as_str(), &query))
            .await
    }

    async fn children(&self, scope: &Scope, id: &SnapshotId) -> Result<Vec<Snapshot>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.read(move |reading| reading.children(scope.as_str(), id.as_str()))
            .await
    }

    async fn delete(&self, scope: &Scope, deletion: &Deletion) -> Result<u64> {
        let (scope, deletion) = (scope.clone(), deletion.clone());
        let thoroughness = match deletion {
            Deletion::Session(_) => Thoroughness::Usual,
            Deletion::Tenant => Thoroughness::Full,
            Deletion::Snapshots(_) => Thoroughness::Log,
        };
        let deleted = self
            .0
            .writer
            .write(move |writing| writing.delete(&scope, &deletion))
            .await?;
        self.scrub(thoroughness).await?;
        Ok(deleted)
    }

    async fn tenants(&self, after: Option<&Scope>) -> Result<Page<Scope, Scope>> {
        let after = after.cloned();
        self.read(move |reading| Ok(page_of_tenants(reading.tenants()?, after.as_ref())))
            .await
    }

    async fn pending(&self, query: &PendingQuery) -> Result<Option<PendingPage>> {
        let query = query.clone();
        self.read(move |reading| reading.pending(&query)).await.map(Some)
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
        Clock::system()
    }

    fn turn_locks(&self) -> Option<&dyn TurnLocks> {
        Some(self)
    }
}

everturn_core::opaque_debug!(SqliteStore, 0.options.path);

#[cfg(test)]
mod tests {
    use everturn_agent::SessionState;
    use everturn_agent::store::JournalRecord;
    use everturn_ai::Message;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    async fn say(store: &SqliteStore, id: &str, second: i64) -> Snapshot {
        let mut row = Snapshot::new(id.into(), "s".into(), Timestamp::from_second(second).unwrap());
        row.state = Some(SessionState {
            messages: std::iter::once(Message::user("hello")).collect(),
            ..SessionState::default()
        });
        let set = Mutation::new(move |_| Ok(Some(row.clone())));
        let (scope, id) = (Scope::default(), id.into());
        let saved = store.save(&scope, Some(&id), Precondition::None, set);
        saved.await.unwrap().unwrap()
    }

    fn remembered(store: &SqliteStore) -> Option<Snapshot> {
        store.remembered(&Scope::default(), &"s".into(), Detail::Whole)
    }

    #[tokio::test]
    async fn a_session_that_was_written_here_is_remembered_until_others_write_or_a_turn_is_journaled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let (here, elsewhere) = (SqliteStore::open(&path), SqliteStore::open(&path));
        let (here, elsewhere) = (here.await.unwrap(), elsewhere.await.unwrap());
        assert_eq!(remembered(&here), None);

        let written = say(&here, "a", 1).await;
        assert_eq!(remembered(&here), Some(written));

        say(&elsewhere, "b", 2).await;
        assert_eq!(remembered(&here), None);

        let written = say(&here, "c", 3).await;
        assert_eq!(remembered(&here), Some(written));

        let (key, record) = (JournalKey::new("s".into(), "turn"), json!("looked"));
        let record = JournalRecord {
            sequence: 0,
            body: record,
        };
        here.append(&Scope::default(), &key, record, None).await.unwrap();
        assert_eq!(remembered(&here), None);
        assert_eq!(
            here.journal()
                .unwrap()
                .read(&Scope::default(), &key)
                .await
                .unwrap()
                .len(),
            1
        );
    }
}
